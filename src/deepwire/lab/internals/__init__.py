"""``deepwire analyze weights``, ``gates`` and ``gradients``: what goes on between the layers of a model."""
