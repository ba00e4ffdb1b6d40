"""Makes `real_text` importable for the tests of this folder and those below."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]
