"""Makes `untrained_models` of the tests of exports importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "export"))
