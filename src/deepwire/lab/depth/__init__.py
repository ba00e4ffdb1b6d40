"""``deepwire analyze depth``: translation quality against the number of layers."""
