"""Pages and plots, and reports on stored runs. `strang.report.page(run)` is the page of a run."""

from strang.report.run_page import page as page
