"""Pages and plots, and reports on stored runs."""
