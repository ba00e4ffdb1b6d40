"""Findings, and all that shows them: text, JSON, Markdown, plots and one HTML page."""
