from __future__ import annotations

from small_runs import analyze, corpus, make_model, run, store, text  # noqa: F401 - fixtures
