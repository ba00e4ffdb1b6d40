from __future__ import annotations

from pathlib import Path

import pytest

PLAN = """
title: Two small systems
about: Four updates teach nothing.
base: small.yaml
settings: [training.max_updates=4, training.log_every=2]
directions:
  de-en: []
seeds: [1]
rounds: 1
samples: 100
baseline: lstm
claims: claims.yaml
more_tests: {more: later}
systems:
  lstm: {description: the base}
  broken:
    settings:
      - "training.schedule={type: constant, peak: 1e30, warmup: 0}"
      - training.clip_norm=null
      - training.max_updates=20
  plain:
    both: [connection=pre_norm]
"""
CLAIMS = """
claims:
  - {paper: A 2024, where: Table 1, task: WMT, higher: lstm, lower: plain, numbers: [28.5, 27.5]}
  - {paper: A 2024, where: Table 1, measure: decoding_speed, higher: plain, lower: lstm}
  - {paper: A 2024, where: Table 2, higher: lstm, lower: broken}
  - {paper: A 2024, where: Table 2, higher: lstm, lower: unknown}
"""


@pytest.fixture(scope="module")
def plan(corpus: Path) -> Path:
    (corpus / "plan.yaml").write_text(PLAN)
    (corpus / "claims.yaml").write_text(CLAIMS)
    for language in ("de", "en"):
        lines = (corpus / f"train.{language}").read_text().splitlines(keepends=True)
        (corpus / f"later.{language}").write_text("".join(lines[:20]))
    return corpus / "plan.yaml"
