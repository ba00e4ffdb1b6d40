"""Analyses of trained models: each gives a `Finding`, which `report` shows as text, JSON, plots or HTML.

``subject`` opens what is analysed; the other folders hold one analysis each.
"""
