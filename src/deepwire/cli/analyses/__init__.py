"""The commands under ``deepwire analyze``: one file each, and the options that all of them have."""
