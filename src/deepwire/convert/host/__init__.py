"""The host of exported graphs: deepwire copies it beside them, and it does not import deepwire."""
