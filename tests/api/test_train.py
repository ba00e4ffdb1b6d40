"""Training from Python: runs, callbacks, sessions, the learning rate."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from reversed_words import SETTINGS

import deepwire
from deepwire.cli.main import main
from deepwire.errors import DataError, UsageError
from deepwire.training.loop import UpdateResult
from deepwire.training.session import TrainingSession
from deepwire.training.state import StopReason
from deepwire.training.validation import Validation

CLOCKS = ("seconds", "tokens_per_second", "memory")


def weights(run: deepwire.Run) -> dict[int, str]:
    """The digests of the weights of each checkpoint."""
    return {
        one.update: json.loads((one.path / "manifest.json").read_text())["files"]["model.safetensors"][
            "blake2b"
        ]
        for one in run.checkpoints
    }


def without_clocks(history: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{key: value for key, value in record.items() if key not in CLOCKS} for record in history]


def test_a_run_has_a_model_a_history_and_a_best_checkpoint(trained: deepwire.Run) -> None:
    assert trained.stop_reason == StopReason("training.max_updates=20", finished=True)
    assert [
        (record["kind"], record["update"]) for record in trained.history if record["kind"] == "valid"
    ] == [
        ("valid", 10),
        ("valid", 20),
    ]
    best = trained.best
    assert best is not None
    losses: list[Any] = [record["loss"] for record in trained.history if record["kind"] == "valid"]
    assert best.scores["loss"] == min(losses)
    assert len(trained.model.translate(["a b c", "d"])) == 2
    opened = deepwire.Run(trained.path)
    assert (opened.history, opened.stop_reason) == (trained.history, trained.stop_reason)
    assert opened.settings["seed"] == 3


def test_python_and_the_command_train_the_same_model(
    trained: deepwire.Run, data: dict[str, object], tmp_path: Path
) -> None:
    file, own = tmp_path / "toy.yaml", SETTINGS["data"]
    assert isinstance(own, dict)
    file.write_text(json.dumps({**SETTINGS, "data": {**own, **data}}))
    assert main(["train", str(file), f"run={tmp_path / 'command'}", "-q"]) == 0
    command = deepwire.Run(tmp_path / "command")
    assert weights(command) == weights(trained)
    assert without_clocks(command.history) == without_clocks(trained.history)


def test_a_finished_run_is_not_trained_again(trained: deepwire.Run, data: dict[str, object]) -> None:
    again = deepwire.train(SETTINGS, data=data, run=str(trained.path), quiet=True)
    assert again.nothing_to_do == "nothing to do: run finished at update 20 (training.max_updates=20)"
    assert again.stop_reason == trained.stop_reason
    done = trained.path / "DONE"
    before = done.read_bytes()
    for damaged in (b"", b"xx\0", b"[]"):
        done.write_bytes(damaged)
        again = deepwire.train(SETTINGS, data=data, run=str(trained.path), quiet=True)
        assert (again.nothing_to_do is None, again.stop_reason) == (False, None)
    done.write_bytes(before)


def test_a_finished_run_is_not_said_to_be_that_of_other_text(tmp_path: Path, corpus: Path) -> None:
    for name in ("train.src", "train.trg", "valid.src", "valid.trg"):
        shutil.copy(corpus / name, tmp_path)
    data = {name: str(tmp_path / name) for name in ("train", "valid", "prepared")}
    run = str(tmp_path / "run")
    deepwire.train(SETTINGS, data=data, run=run, quiet=True, training={"max_updates": 2})
    with (tmp_path / "train.src").open("a") as source, (tmp_path / "train.trg").open("a") as target:
        source.write("a new line\n")
        target.write("enil wen a\n")
    with pytest.raises(
        UsageError,
        match=r"original run: text of data\.train or data\.valid: [0-9a-f]{12} -> ",
    ):
        deepwire.train(SETTINGS, data=data, run=run, quiet=True, training={"max_updates": 2})
    # Without its text, a run can still be seen to be complete.
    (tmp_path / "train.src").unlink()
    again = deepwire.train(SETTINGS, data=data, run=run, quiet=True, training={"max_updates": 2})
    assert again.nothing_to_do is not None


class Log(deepwire.Callback):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_start(self, session: TrainingSession) -> None:
        self.heard.append(("start", session.update))

    def after_update(self, session: TrainingSession, update: UpdateResult) -> None:
        assert session.update == update.number
        assert update.finite
        assert 0 < update.nll < 10
        assert update.loss == pytest.approx(update.nll, rel=0.1)
        assert update.gradient_norm > 0
        if update.number % 5 == 0:
            self.heard.append(update.number)

    def after_validation(self, session: TrainingSession, validation: Validation) -> None:
        assert session.scores == validation.scores
        self.heard.append(("valid", session.update))

    def on_end(self, session: TrainingSession, stop_reason: StopReason) -> None:
        self.heard.append(("end", session.update, stop_reason.finished))


def test_callbacks_hear_of_everything_in_order(data: dict[str, object], tmp_path: Path) -> None:
    log = Log()
    deepwire.train(SETTINGS, data=data, run=str(tmp_path / "run"), quiet=True, callbacks=[log])
    assert log.heard == [
        ("start", 0), 5, 10, ("valid", 10), 15, 20, ("valid", 20), ("end", 20, True)
    ]  # fmt: skip


class Slower(deepwire.Callback):
    """Sets the learning rate after update 4 and stops after update `stop`."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop = stop
        self.rates: list[float] = []

    def after_update(self, session: TrainingSession, update: UpdateResult) -> None:
        self.rates.append(update.learning_rate)
        if update.number == 4:
            session.learning_rate /= 4
        if update.number == self.stop:
            session.stop()


def test_a_learning_rate_that_a_callback_sets_outlives_an_interruption(
    data: dict[str, object], tmp_path: Path
) -> None:
    """Whoever continues the run: the callback, which does not set it again, or the command."""
    straight, first, rest = Slower(), Slower(stop=7), Slower()
    whole = deepwire.train(SETTINGS, data=data, run=str(tmp_path / "whole"), quiet=True, callbacks=[straight])
    part = deepwire.train(SETTINGS, data=data, run=str(tmp_path / "part"), quiet=True, callbacks=[first])
    assert part.stop_reason == StopReason("the program", finished=False)
    part = deepwire.train(SETTINGS, data=data, run=str(tmp_path / "part"), quiet=True, callbacks=[rest])
    assert first.rates + rest.rates == straight.rates
    assert straight.rates[4:] == [pytest.approx(straight.rates[4])] * 16
    assert straight.rates[4] == pytest.approx(0.002, rel=1e-5)
    assert weights(part)[20] == weights(whole)[20]
    assert without_clocks(part.history) == without_clocks(whole.history)


def test_a_session_that_is_left_early_is_saved_and_goes_on_as_if_nothing_happened(
    trained: deepwire.Run, data: dict[str, object], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"data": data, "run": str(tmp_path / "run"), "quiet": True}
    with deepwire.training_session(SETTINGS, **settings) as session:
        for update in session:
            if update.number == 7:
                break
    assert session.stop_reason == StopReason("the program", finished=False)
    assert [one.update for one in deepwire.Run(session.run).checkpoints] == [7]
    with deepwire.training_session(SETTINGS, **settings) as session:  # a cell of a notebook that is run again
        assert [update.number for update in session] == list(range(8, 21))
        assert session.scores["loss"] > 0
    assert session.stop_reason == trained.stop_reason
    assert weights(deepwire.Run(session.run))[20] == weights(trained)[20]


def test_one_thread_of_a_process_trains_at_a_time(data: dict[str, object], tmp_path: Path) -> None:
    """Random numbers are the process's."""

    def settings(name: str) -> dict[str, Any]:
        return {"data": data, "run": str(tmp_path / name), "quiet": True}

    with ThreadPoolExecutor(1) as other:
        with deepwire.training_session(SETTINGS, **settings("first")) as session:
            next(iter(session))
            with pytest.raises(UsageError, match="another thread of this process trains"):
                other.submit(deepwire.train, SETTINGS, **settings("second")).result()
        assert other.submit(deepwire.train, SETTINGS, **settings("second")).result().best


def test_an_error_in_a_callback_comes_out_and_leaves_the_run_free(
    data: dict[str, object], tmp_path: Path
) -> None:
    class Wrong(deepwire.Callback):
        def after_update(self, session: TrainingSession, update: UpdateResult) -> None:
            if update.number == 12:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        deepwire.train(SETTINGS, data=data, run=str(tmp_path / "run"), quiet=True, callbacks=[Wrong()])
    run = deepwire.train(SETTINGS, data=data, run=str(tmp_path / "run"), quiet=True)
    assert run.stop_reason == StopReason("training.max_updates=20", finished=True)


def test_mistakes_are_told_as_in_a_run_file(data: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"argument: training.batch_token: unknown key \(did you mean"):
        deepwire.train(SETTINGS, data=data, training={"batch_token": 3})
    dotted: dict[str, Any] = {"training.ema.decay": 0.9}
    with pytest.raises(UsageError, match=r'training.ema.decay: write training=\{"ema": \{"decay": ...\}\}'):
        deepwire.train(SETTINGS, data=data, **dotted)
    with pytest.raises(UsageError, match="settings: name the run directory"):
        deepwire.train(SETTINGS, data=data, quiet=True)
    with pytest.raises(DataError, match=r"gone\.src"):
        deepwire.prepare(SETTINGS, data={**data, "train": "gone"})
