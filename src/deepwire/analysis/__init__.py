"""Analyses of trained models: each gives a `Finding` that is shown as text, JSON, plots or HTML."""
