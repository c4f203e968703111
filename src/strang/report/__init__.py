"""Pages and plots, and what can be told of a stored run."""
