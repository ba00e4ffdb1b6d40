"""Training in several processes gives the numbers of one, survives faults, and ends together."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import torch
from job_of_processes import EXACT, UPDATES, Launcher, Patch
from torch import Tensor
from toy_run import after_step, stand_before, wait_for

from deepwire.model.translation_model import LossSums, TranslationModel
from deepwire.training.optimizers.optimizer import Optimizer

BLEU = "training.validation.bleu=true"


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("several"))


@pytest.fixture(scope="module")
def alone(launcher: Launcher) -> Launcher:
    assert launcher.train("alone", 1, *EXACT, BLEU) == [0], launcher.text()
    return launcher


@pytest.fixture(scope="module")
def pair(launcher: Launcher) -> Launcher:
    assert launcher.train("pair", 2) == [0, 0], launcher.text()
    return launcher


def same_within_rounding(launcher: Launcher, name: str, other: str, update: int = UPDATES) -> None:
    first, second = (launcher.outcome(run, update)[0] for run in (name, other))
    assert len(first) == len(second) > 0
    for ours, theirs in zip(first, second, strict=True):
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            assert theirs[key] == (pytest.approx(value, rel=1e-5) if isinstance(value, float) else value), key
    ours, theirs = (launcher.weights(run, update) for run in (name, other))
    assert all(torch.allclose(ours[key], theirs[key], rtol=1e-4, atol=1e-5) for key in ours)


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_number_of_processes_does_not_change_the_numbers(alone: Launcher, count: int) -> None:
    assert alone.train(f"exact{count}", count, *EXACT, BLEU) == [0] * count, alone.text()
    same_within_rounding(alone, f"exact{count}", "alone")
    texts = [
        (alone.run_directory(name).translations / "update-000012.txt").read_text()
        for name in ("alone", f"exact{count}")
    ]
    assert texts[0] == texts[1]
    assert alone.text().count(" valid loss ") == 2
    assert alone.text().count("stopped at update") == 1
    assert f"{count} processes on cpu" in alone.text()


def test_with_fewer_pairs_than_processes_some_have_nothing_to_do(launcher: Launcher) -> None:
    settings = (*EXACT, "training.batch_tokens=1", "training.max_updates=4", "training.validation.every=4")
    for name, count in (("single", 1), ("starved", 3)):
        assert launcher.train(name, count, *settings) == [0] * count, launcher.text()
    same_within_rounding(launcher, "starved", "single", 4)


@pytest.mark.slow
def test_killed_at_random_moments_gives_the_same_run(pair: Launcher) -> None:
    waits = (0.0, 0.1, 0.3)
    for wait in waits:
        job = pair.begin("killed", 2, patch=lambda _: stand_before(UPDATES))
        wait_for(pair.run_directory("killed").metrics)
        time.sleep(wait)
        job.signal(signal.SIGKILL)
        first, second = job.wait()
        assert first == -signal.SIGKILL
        assert second in (-signal.SIGKILL, 1)  # it may see that the first is gone before it is killed, too
    assert pair.train("killed", 2) == [0, 0], pair.text()
    assert pair.outcome("killed") == pair.outcome("pair")


def test_a_signal_to_one_process_saves_and_stops_all(pair: Launcher) -> None:
    told = at_call(4, 1, lambda _: signal.raise_signal(signal.SIGTERM))
    assert pair.train("signal", 2, patch=told) == [143, 143]
    assert pair.run_directory("signal").checkpoints()[-1].update == 4
    assert pair.text().count("stopped at update 4: SIGTERM") == 1
    assert pair.train("signal", 2) == [0, 0], pair.text()
    assert pair.outcome("signal") == pair.outcome("pair")


@pytest.mark.slow
def test_torchrun_starts_it_and_hands_signals_on(pair: Launcher) -> None:
    run = pair.run_directory("torchrun")
    # A port of its own: that of torchrun's default may be taken.
    options = ["--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "deepwire"]
    with pair.output.open("w") as output:
        arguments = ["train", str(pair.folder / "run.yaml"), f"run={run.path}", "training.max_updates=100k"]
        job = subprocess.Popen([*command, *arguments], stdout=output, stderr=output)
        wait_for(run.metrics)
        job.send_signal(signal.SIGTERM)
        job.wait(600)
    assert pair.text().count(": SIGTERM\n") == 1, pair.text()
    saved = run.checkpoints()[-1].update
    assert pair.train("torchrun", 2, f"training.max_updates={saved + 2}") == [0, 0], pair.text()
    ours, theirs = (
        {one["update"]: one for one in pair.outcome(name, last)[0] if one["kind"] == "train"}
        for name, last in (("torchrun", saved + 2), ("pair", UPDATES))
    )
    both = ours.keys() & theirs.keys()
    assert len(both) >= 3
    assert all(ours[update] == theirs[update] for update in both)


def test_from_one_process_to_two_and_back(alone: Launcher) -> None:
    for limit, count in ((4, 1), (8, 2), (UPDATES, 1)):
        codes = alone.train("changing", count, *EXACT, f"training.max_updates={limit}")
        assert codes == [0] * count, alone.text()
    assert "changed: processes: 2 -> 1" in alone.text()
    records = {
        name: {one["update"]: one["loss"] for one in alone.outcome(name)[0] if one["kind"] == "train"}
        for name in ("alone", "changing")
    }
    assert records["changing"] == pytest.approx(records["alone"], rel=1e-5)


def at_call(number: int, rank: int, act: Callable[[Optimizer], object]) -> Patch:
    """Acts in one process after its n-th step of the optimizer."""
    return lambda own: after_step(number, act) if own == rank else None


def fail(_: Optimizer) -> None:
    raise ValueError("something broke")


def test_an_error_in_one_process_ends_all_and_is_shown_first(launcher: Launcher) -> None:
    codes = launcher.train("error", 2, patch=at_call(5, 1, fail))
    assert codes == [1, 1]
    text = launcher.text()
    assert text.count("Traceback") == 1
    assert text.count("error: ") == 1
    assert text.index("ValueError: something broke") < text.index("error: unexpected ValueError")
    log = launcher.run_directory("error").log.read_text()
    assert "process 1 of 2 failed: ValueError: something broke" in log
    assert launcher.train("error", 2) == [0, 0]


def test_a_process_that_is_killed_ends_all(launcher: Launcher) -> None:
    job = launcher.begin("lost", 2, "training.max_updates=100k")
    wait_for(launcher.run_directory("lost").metrics)
    job.signal(signal.SIGKILL, 1)
    assert job.wait() == [1, -signal.SIGKILL]
    assert "error: the job cannot go on: another process ended without an error message" in launcher.text()
    assert "Traceback" not in launcher.text()


def losses(rank: int, change: Callable[[int, Tensor, LossSums], LossSums]) -> Patch:
    """Changes the training losses of one process; gets the number of the call, the sources and the sums."""

    def patch(own: int) -> None:
        loss, calls = TranslationModel.loss, [0]

        def wrapped(self: TranslationModel, source: Tensor, *rest: object, **named: object) -> LossSums:
            sums = loss(self, source, *rest, **named)  # type: ignore[arg-type]
            if own != rank or not self.training:
                return sums
            calls[0] += 1
            return change(calls[0], source, sums)

        TranslationModel.loss = wrapped  # type: ignore[method-assign]

    return patch


def no_memory_for(rows: int) -> Callable[[int, Tensor, LossSums], LossSums]:
    def change(_: int, source: Tensor, sums: LossSums) -> LossSums:
        if len(source) > rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return sums

    return change


def test_out_of_memory_in_one_process_cuts_the_batches_of_all(alone: Launcher) -> None:
    codes = alone.train("memory", 2, *EXACT, BLEU, patch=losses(1, no_memory_for(3)))
    assert codes == [0, 0], alone.text()
    assert "u 1 out of memory: from here on micro-batches are cut in 2" in alone.text()
    same_within_rounding(alone, "memory", "alone")
    state = json.loads((alone.run_directory("memory").checkpoint_path(UPDATES) / "state.json").read_text())
    assert state["pieces"] >= 2


SHARDED = ("training.sharding=full", "training.checkpoint.every=6")


RECOMPUTED = "training.activation_checkpointing=true"


def test_sharded_parameters_give_the_same_numbers(alone: Launcher) -> None:
    settings = (*EXACT, *SHARDED, RECOMPUTED, "training.max_updates=6")
    assert alone.train("sharded", 3, *settings) == [0] * 3, alone.text()
    assert alone.outcome("sharded", 6)[0][-1]["loss"] == pytest.approx(
        loss_of(alone, "alone", "valid", 6), rel=1e-5
    )
    # The rest in one process, from their checkpoint.
    assert alone.train("sharded", 1, *EXACT, "training.validation.bleu=true") == [0], alone.text()
    ours, theirs = (alone.weights(name) for name in ("sharded", "alone"))
    assert all(torch.allclose(ours[key], theirs[key], rtol=1e-4, atol=1e-5) for key in theirs)


def loss_of(launcher: Launcher, name: str, kind: str, update: int) -> object:
    records = launcher.outcome(name)[0]
    return next(one["loss"] for one in records if (one["kind"], one["update"]) == (kind, update))


@pytest.mark.slow
def test_a_sharded_run_goes_on_exactly_and_recomputes_the_same(launcher: Launcher) -> None:
    layers = ("model.encoder.layers=2", "model.decoder.layers=1")
    common = (*SHARDED, *layers, "training.validation.every=2", "training.ema.decay=0.8")
    for name, steps in (("whole", ((4, "false"),)), ("parts", ((2, "false"), (4, "true")))):
        for limit, recomputes in steps:
            settings = (
                f"training.max_updates={limit}",
                f"training.activation_checkpointing={recomputes}",
            )
            codes = launcher.train(name, 2, *common, *settings)
            assert codes == [0, 0], launcher.text()
    assert launcher.outcome("parts", 4) == launcher.outcome("whole", 4)


def not_finite(first: int) -> Callable[[int, Tensor, LossSums], LossSums]:
    def change(call: int, _: Tensor, sums: LossSums) -> LossSums:
        return sums._replace(smoothed=sums.smoothed * float("nan")) if call >= first else sums

    return change


def test_an_update_that_is_not_finite_in_one_process_is_skipped_in_all(launcher: Launcher) -> None:
    assert launcher.train("nan", 2, "training.max_updates=40", patch=losses(1, not_finite(20))) == [5, 5]
    assert launcher.text().count("error: loss or gradient not finite 10 updates in a row") == 1
    bad = [json.loads(line) for line in launcher.run_directory("nan").bad_batch.read_text().splitlines()]
    assert len(bad) == 10
    # Pairs of the whole update, not only those of the process that writes.
    assert min(len(one["lines"]) for one in bad) > 10


def test_weights_that_drift_apart_are_not_saved(launcher: Launcher) -> None:
    def drift(optimizer: Optimizer) -> None:
        with torch.no_grad():
            next(iter(optimizer.parameters.values())).mul_(1.0001)

    assert launcher.train("drift", 2, patch=at_call(2, 1, drift)) == [6, 6]
    assert "the weights are no longer the same in all 2 processes: process 1 differs" in launcher.text()
    assert launcher.run_directory("drift").checkpoints() == []
