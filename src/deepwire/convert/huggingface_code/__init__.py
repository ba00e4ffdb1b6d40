"""Files that `deepwire export --format huggingface-code` lays beside the weights; they import deepwire."""
