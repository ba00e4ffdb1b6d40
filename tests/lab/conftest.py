from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from small_runs import analyze, corpus, make_model, run, store, text  # noqa: F401 - fixtures
