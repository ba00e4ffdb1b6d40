"""Studies: systems trained by a plan with several seeds, compared by tests, on one page."""
