"""A connection, a mixer, an optimizer and a schedule for deepwire; importing this package imports none."""
