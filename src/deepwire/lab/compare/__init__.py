"""``deepwire analyze compare``: runs side by side."""
