"""``deepwire analyze speed``: speed and memory of training and decoding."""
