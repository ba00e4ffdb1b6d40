"""A connection and a mixer for deepwire; importing this package imports neither."""
