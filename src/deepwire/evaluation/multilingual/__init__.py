"""Scores of many translation directions at once: per direction, on average, by group, against a baseline."""
