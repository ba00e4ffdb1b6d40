"""deepwire: train, study and serve deep Transformer translation models.

From Python: ``deepwire.load(path).translate(["..."])`` and ``deepwire.build(config, vocabulary_size)``.
Importing this package imports no torch; the two functions do when they are called.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__"]
