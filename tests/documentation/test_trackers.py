"""The scripts in `examples/trackers`, with records as `--log-command` gives them."""

from __future__ import annotations

import io
import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "examples" / "trackers"
RECORDS = [
    {"kind": "begin", "run": "runs/toy", "update": 0, "settings": {"seed": 1}},
    {"kind": "train", "update": 10, "loss": 3.5, "seconds": 1.5},
    {"kind": "valid", "update": 10, "loss": 3.25, "directions": {"de-en": {"loss": 3.25}}},
    {"kind": "end", "update": 10, "reason": "training.max_updates=10", "finished": True},
]


class Tracker(SimpleNamespace):
    """Takes any call and keeps it."""

    def __init__(self) -> None:
        super().__init__(calls=[])

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: self.calls.append((name, arguments, named))


def run(script: str, argument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [script, argument])
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(record) + "\n" for record in RECORDS)))
    runpy.run_path(str(SCRIPTS / script), run_name="__main__")


@pytest.mark.parametrize(
    ("name", "logged"),
    [("wandb", "log"), ("mlflow", "log_metrics"), ("trackio", "log")],
)
def test_numbers_reach_the_tracker(name: str, logged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trackers are not installed here: what is called must exist in theirs, which this cannot show."""
    tracker = Tracker()
    monkeypatch.setitem(sys.modules, name, tracker)
    run(f"to_{name}.py", "mine", monkeypatch)
    told = [arguments[0] for called, arguments, _ in tracker.calls if called == logged]
    assert [values["train/loss"] for values in told if "train/loss" in values] == [3.5]
    assert [values["valid/loss"] for values in told if "valid/loss" in values] == [3.25]
    assert not any("directions" in key for values in told for key in values)


def test_tensorboard_has_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # The environment of a tracker need not have torch.
    for name in ("torch", "torch.utils", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    run("to_tensorboard.py", str(tmp_path), monkeypatch)
    events = EventAccumulator(str(tmp_path)).Reload()
    (settings,) = events.Tensors("settings/text_summary")
    assert b'"seed": 1' in settings.tensor_proto.string_val[0]
    assert [(event.step, event.value) for event in events.Scalars("valid/loss")] == [(10, 3.25)]
