from __future__ import annotations

from pathlib import Path

import pytest

SYSTEMS = """
title: Small systems
base: small.yaml
settings:
  - training.max_updates=60
  - training.log_every=1
  - "training.validation={every: 10}"
  - "training.early_stopping={metric: nll, patience: 6}"
  - "training.checkpoint={every: 10, keep_last: 4}"
  - training.threads=1  # the same sums in this process and in others
directions: {de-en: []}
seeds: [1, 2]
baseline: plain
search:
  max_updates: 10
  shorten_warmup: false
  alternatives: {slow: [training.schedule.peak=1e-6]}
systems:
  plain:
    both: [connection=pre_norm]
  lstm:
    tuned_as: plain
  broken:
    settings: ["training.schedule={type: constant, peak: 1e30, warmup: 0}", training.clip_norm=null]
    alternatives: {}
"""
QUESTIONS = """
title: Answers
about: Sixty updates teach little.
parts:
  small: {plan: systems.yaml, equal_updates: 30, average: 2}
questions:
  Q1:
    title: Which is better?
    part: small
    systems: [lstm, plain, broken]
    claims:
      - {says: lstm above plain, paper: A 2024, better: lstm, than: plain}
      - {says: lstm above broken, paper: A 2024, better: lstm, than: broken}
    answers: {holds: It is lstm., reversed: It is plain., open: Neither.}
  Q2:
    title: And another one?
    part: small
    systems: [plain, lstm]
    claims:
      - {says: nothing, paper: A 2024, better: plain, than: lstm}
    answers: {holds: "Yes.", reversed: "No.", open: Neither.}
queue:
  - {question: Q1, systems: [lstm, broken, plain]}
  - {question: Q1, systems: [plain], until: plateau}
"""


@pytest.fixture(scope="module")
def plan(corpus: Path) -> Path:
    (corpus / "systems.yaml").write_text(SYSTEMS)
    (corpus / "questions.yaml").write_text(QUESTIONS)
    return corpus / "questions.yaml"
