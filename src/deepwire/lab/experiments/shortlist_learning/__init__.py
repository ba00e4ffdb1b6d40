"""``deepwire shortlist``: which target subwords a source subword brings forth, learned from parallel text."""
