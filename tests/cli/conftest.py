"""Makes `untrained_models` and `permissions` of other tests importable, and has its comparisons end early."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))
sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))
from untrained_models import short_comparisons  # noqa: F401 - a fixture of all tests here
