"""`deepwire serve`: a model behind HTTP for many clients at a time, with limits on all they ask for."""
