"""``deepwire analyze agreement``: contrastive scoring of translations with and without an error."""
