"""Documents: what in a file is text, and the file again with another text."""
