from __future__ import annotations

import dataclasses
import json
import math
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_run import JobMaker, digests, records, run_training

from deepwire.checkpoint.model_path import find_model, last_checkpoints
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import load_model
from deepwire.data.batches.batching import Batch, StreamPosition, Update, UpdateStream
from deepwire.errors import UsageError
from deepwire.model.translation_model import TranslationModel
from deepwire.training import spec as starting
from deepwire.training import validation
from deepwire.training.loop import UpdateResult
from deepwire.training.run import load_state
from deepwire.training.session import Callback, TrainingSession, nothing_to_do_reason


def test_the_loss_falls_and_every_update_is_logged_once(make_job: JobMaker) -> None:
    job = make_job()
    outcome = run_training(job, quiet=True)
    train = records(job.run, "train")
    assert [record["update"] for record in train] == [1, *range(5, 31, 5)]
    assert train[-1]["loss"] < 0.9 * train[0]["loss"]
    assert [record["update"] for record in records(job.run, "valid")] == [10, 20, 30]
    assert outcome.stop_reason.finished
    assert json.loads(job.run.done.read_text()) == {"update": 30, "reason": "training.max_updates=30"}


def test_logged_numbers_are_per_target_token(make_job: JobMaker) -> None:
    job = make_job(max_updates=1, label_smoothing=0.0, model={"initialization": "lipschitz"})
    run_training(job, quiet=True)
    first = records(job.run, "train")[0]
    words = job.prepared.vocabularies.target.size
    assert first["loss"] == pytest.approx(math.log(words), rel=0.25)
    assert first["loss"] == pytest.approx(first["nll"], rel=1e-5)
    assert first["perplexity"] == pytest.approx(math.exp(first["nll"]), rel=1e-6)


def test_a_seed_gives_one_run_and_another_seed_another(make_job: JobMaker) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run_training(make_job(name, seed=seed, max_updates=10), quiet=True)
    a, b, c = (records(make_job(name).run) for name in "abc")
    assert a == b
    assert a != c


class MergedStream(UpdateStream):
    """The same updates, but each as one batch."""

    def updates(self, start: StreamPosition) -> Iterator[tuple[Update, StreamPosition]]:
        for update, after in super().updates(start):
            yield dataclasses.replace(update, batches=(merged(update.batches),)), after


def merged(batches: Sequence[Batch]) -> Batch:
    def stack(name: str) -> np.ndarray:
        arrays = [getattr(batch, name) for batch in batches]
        width = max(array.shape[1] for array in arrays)
        return np.concatenate([np.pad(array, ((0, 0), (0, width - array.shape[1]))) for array in arrays])

    return Batch(
        stack("source"),
        stack("target_input"),
        stack("target_output"),
        sum(batch.target_tokens for batch in batches),
        np.concatenate([batch.lines for batch in batches]),
    )


def test_a_wide_model_has_the_schedule_of_its_base(make_job: JobMaker) -> None:
    """Noam's rates fall with the width of the model; with CompleteP they are those of its base."""
    parametrization = {"parametrization": {"base": {"d_model": 16, "heads": 2}}}
    rates = []
    for name, model in (("wide", {"d_model": 32, **parametrization}), ("base", {})):
        job = make_job(name, model=model, max_updates=1, schedule={"type": "noam", "warmup": 4})
        run_training(job, quiet=True)
        rates.append(records(job.run, "train")[0]["learning_rate"])
    assert rates[0] == rates[1]


def test_accumulation_equals_one_big_batch(make_job: JobMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, object] = {
        "model": {"dropout": 0.0},
        "max_updates": 8,
        "log_every": 1,
        "optimizer": {"eps": 1e-3},
    }
    many = make_job("many", **settings)
    run_training(many, quiet=True)
    monkeypatch.setattr(starting, "UpdateStream", MergedStream)
    one = make_job("one", **settings)
    run_training(one, quiet=True)
    for ours, theirs in zip(records(many.run, "train"), records(one.run, "train"), strict=True):
        for name in ("target_tokens", "loss", "nll", "gradient_norm"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4)


def test_training_ends_exactly_with_an_epoch(make_job: JobMaker) -> None:
    job = make_job(max_updates=None, stop_after="3e")
    outcome = run_training(job, quiet=True)
    assert outcome.best is not None
    state = load_state(job.run.checkpoints()[-1].path)
    assert state.epochs == 3.0
    assert state.position.epoch == 2
    assert "training.stop_after=3e" in outcome.stop_reason.reason


def test_early_stopping_ends_the_run(make_job: JobMaker) -> None:
    job = make_job(
        schedule={"type": "constant", "peak": 1e-12},
        validation={"every": 5},
        early_stopping={"metric": "loss", "patience": 3, "min_improvement": 1e-3},
    )
    outcome = run_training(job, quiet=True)
    assert len(records(job.run, "valid")) == 4
    assert outcome.stop_reason.finished
    assert "has not improved" in outcome.stop_reason.reason
    reason = nothing_to_do_reason(job.run, job.config)
    assert reason is not None
    assert "early_stopping.patience=3" in reason
    # Killed before it could say so, it is as complete as after it.
    job.run.done.unlink()
    outcome = run_training(job, quiet=True)
    assert (outcome.stop_reason.finished, job.run.done.exists()) == (True, True)
    assert len(records(job.run, "valid")) == 4
    # A metric that nobody has waited for goes on.
    other = make_job(validation={"every": 5}, early_stopping={"metric": "nll", "patience": 3})
    assert nothing_to_do_reason(job.run, other.config) is None


class Translation:
    """Stands for decoding: gives the sources back, and scores that the test wants."""

    def __init__(self, scores: list[float]) -> None:
        self.scores, self.calls = scores, 0

    def translate(
        self, model: TranslationModel, _: object, texts: Sequence[str], *, to: str = ""
    ) -> list[str]:
        assert not model.training
        return list(texts)

    def score(
        self,
        _metric: object,
        translations: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
        *,
        language: str = "",
    ) -> float:
        assert translations == sources
        assert len(translations) == len(references) == 40
        assert sorted(translations[0].split()) == sorted(references[0].split())
        self.calls += 1
        return self.scores[self.calls - 1]


def test_bleu_chooses_the_best_checkpoint(make_job: JobMaker) -> None:
    translation = Translation([10.0, 30.0, 20.0])
    job = dataclasses.replace(
        make_job(validation={"bleu": True, "metric": "bleu"}),
        translate=translation.translate,
        score=translation.score,
    )
    outcome = run_training(job, quiet=True)
    assert [record["bleu"] for record in records(job.run, "valid")] == [10.0, 30.0, 20.0]
    assert outcome.best is not None
    assert outcome.best.update == 20
    texts = (job.run.translations / "update-000020.txt").read_text().splitlines()
    assert texts == [job.prepared.valid.source_text(line) for line in range(40)]


def test_validation_counts_every_token_once_whatever_the_batches(make_job: JobMaker) -> None:
    jobs = [
        make_job(f"v{tokens}", max_updates=5, validation={"every": 5, "max_tokens": tokens})
        for tokens in (1, 50, 4000)
    ]
    for job in jobs:
        run_training(job, quiet=True)
    losses = [records(job.run, "valid")[0]["loss"] for job in jobs]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_part_of_the_validation_set(make_job: JobMaker) -> None:
    translation = Translation([])
    seen: list[int] = []

    def score(_: object, *texts: Sequence[str], language: str = "") -> float:
        seen.extend(map(len, texts))
        return 1.0

    job = dataclasses.replace(
        make_job(max_updates=5, validation={"every": 5, "bleu": True, "max_sentences": 7}),
        translate=translation.translate,
        score=score,
    )
    run_training(job, quiet=True)
    assert seen == [7, 7, 7]


def test_without_a_validation_set_the_newest_is_the_best(make_job: JobMaker) -> None:
    job = make_job(max_updates=4, checkpoint={"every": 2})
    job = dataclasses.replace(job, prepared=dataclasses.replace(job.prepared, valid=None))
    outcome = run_training(job, quiet=True)
    assert outcome.best is not None
    assert outcome.best.update == 4
    stopping = make_job("other", early_stopping={"patience": 1})
    stopping = dataclasses.replace(stopping, prepared=job.prepared)
    with pytest.raises(UsageError, match="validation set"):
        run_training(stopping, quiet=True)


class Interrupter(Translation):
    """Sends a signal to the process in the middle of a validation."""

    def translate(
        self, model: TranslationModel, _: object, texts: Sequence[str], *, to: str = ""
    ) -> list[str]:
        signal.raise_signal(signal.SIGTERM)
        return super().translate(model, _, texts)


def test_an_interrupted_validation_is_made_up_for(
    make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "_CHUNK", 10)
    settings = {"validation": {"bleu": True}, "checkpoint": {"every": 30}}
    whole, parts = Translation([10.0, 20.0, 30.0]), Translation([10.0, 20.0, 30.0])
    straight = make_job("straight", **settings)
    straight = dataclasses.replace(straight, translate=whole.translate, score=whole.score)
    run_training(straight, quiet=True)

    job = make_job("broken", **settings)
    interrupter = Interrupter([])
    broken = dataclasses.replace(job, translate=interrupter.translate, score=interrupter.score)
    outcome = run_training(broken, quiet=True)
    assert (outcome.stop_reason.exit_code, outcome.stop_reason.finished) == (143, False)
    assert records(job.run, "valid") == []
    assert load_state(job.run.checkpoint_path(10)).validation_due
    run_training(dataclasses.replace(job, translate=parts.translate, score=parts.score), quiet=True)
    assert records(job.run) == records(straight.run)
    assert digests(job.run, 30) == digests(straight.run, 30)
    here, there = ([(one.update, one.interim) for one in each.run.checkpoints()] for each in (job, straight))
    assert here == there


class StopAfter(Callback):
    """Asks for the end of training after an update."""

    def __init__(self, update: int) -> None:
        self.update = update

    def after_update(self, session: TrainingSession, update: UpdateResult) -> None:
        if update.number == self.update:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.slow
def test_interruptions_take_no_place_of_a_checkpoint(make_job: JobMaker) -> None:
    """What is kept, and what the average of the last ones is made of, is as without them."""
    settings = {"max_updates": 50, "checkpoint": {"every": 10, "keep_last": 3}}
    straight, broken = make_job("straight", **settings), make_job("broken", **settings)
    run_training(straight, quiet=True)
    for update in (13, 26, 27, 35, 38):
        run_training(broken, quiet=True, callbacks=[StopAfter(update)])
        assert [one.update for one in broken.run.checkpoints()][-1] == update
        names = [folder.name for folder in last_checkpoints(broken.run, min(update // 10, 3))]
        assert names[-1] == f"update-{update // 10 * 10:06d}"
    run_training(broken, quiet=True)
    here, there = ([one.update for one in job.run.checkpoints()] for job in (broken, straight))
    assert here == there
    averages = [find_model(f"{job.run.path}@avg3") for job in (broken, straight)]
    first, second = ((folder / "model.safetensors").read_bytes() for folder in averages)
    assert first == second


def test_a_finished_run_is_left_alone_until_its_limit_is_raised(make_job: JobMaker) -> None:
    job = make_job(max_updates=10)
    assert nothing_to_do_reason(job.run, job.config) is None
    run_training(job, quiet=True)
    before = {path: path.stat().st_mtime_ns for path in job.run.path.rglob("*")}
    reason = nothing_to_do_reason(job.run, job.config)
    assert reason == "nothing to do: run finished at update 10 (training.max_updates=10)"
    assert {path: path.stat().st_mtime_ns for path in job.run.path.rglob("*")} == before
    longer = make_job(max_updates=15)
    assert nothing_to_do_reason(longer.run, longer.config) is None
    run_training(longer, quiet=True)
    assert records(job.run, "train")[-1]["update"] == 15
    assert json.loads(job.run.done.read_text())["update"] == 15


def test_fresh_keeps_the_old_run(make_job: JobMaker) -> None:
    job = make_job(max_updates=5)
    run_training(job, quiet=True)
    for number in (1, 2):
        run_training(job, fresh=True, quiet=True)
        old = RunDirectory(job.run.path.with_name(f"run.{number}"))
        assert f"is now {old.path}" in job.run.log.read_text()
        assert records(old) == records(job.run)
        assert old.checkpoints()


def test_fresh_moves_nothing_but_runs(make_job: JobMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(max_updates=5)
    job.run.path.mkdir()
    (job.run.path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match="run: is no run, and --fresh moves only runs aside"):
        run_training(job, fresh=True, quiet=True)
    assert [path.name for path in job.run.path.iterdir()] == ["thesis.tex"]
    job.run.metrics.write_text("")
    monkeypatch.chdir(job.run.path)
    here = dataclasses.replace(job, run=RunDirectory(Path()))
    with pytest.raises(UsageError, match="cannot move the working directory aside"):
        run_training(here, fresh=True, quiet=True)


def test_bfloat16_trains_with_float32_weights(make_job: JobMaker) -> None:
    job = make_job(max_updates=15, precision="bf16")
    run_training(job, quiet=True)
    model = load_model(job.run.checkpoint_path(15)).model
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    train = records(job.run, "train")
    assert train[-1]["loss"] < train[0]["loss"]
    exact = make_job("exact", max_updates=1)
    run_training(exact, quiet=True)
    assert train[0]["loss"] != records(exact.run, "train")[0]["loss"]


def test_tensorboard_gets_the_same_numbers(make_job: JobMaker) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    job = make_job(max_updates=10, tensorboard=True)
    run_training(job, quiet=True)
    shown = events.EventAccumulator(str(job.run.tensorboard)).Reload()
    for kind, name in (("train", "loss"), ("train", "gradient_norm"), ("valid", "nll")):
        expected = [(one["update"], pytest.approx(one[name], rel=1e-6)) for one in records(job.run, kind)]
        assert [(one.step, one.value) for one in shown.Scalars(f"{kind}/{name}")] == expected
