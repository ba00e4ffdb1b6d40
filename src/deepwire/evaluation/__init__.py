"""Scores of translations and tests of their differences."""
