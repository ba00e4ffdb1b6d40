"""benchmarks/operations.py at sizes that take no time."""

from __future__ import annotations

import sys

import operations
import pytest


def test_every_operation_is_timed_in_every_format(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(operations, "DROPPED", ((3, 4),))
    monkeypatch.setattr(operations, "LOSSES", ((5, 4, 7),))
    monkeypatch.setattr(operations, "ATTENDING", ((2, 2, 1, 3, 4),))
    monkeypatch.setattr(operations, "MOVED", ((2, 3, 4),))
    monkeypatch.setattr(sys, "argv", ["operations.py", "--turns", "1"])
    operations.main()
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    titles = [row[1].strip() for row in rows]
    assert [title for title in titles if title.endswith("p32") or title.endswith("f16")] == [
        f"{name}, {kind}"
        for name in ("3, 4", "5, 4, 7", "2, 2, 1, 3, 4", "2, 3, 4")
        for kind in ("fp32", "bf16")
    ]
    assert all(float(number) > 0 for row in rows for number in row[2:4] if not row[2].strip().endswith("ms"))
