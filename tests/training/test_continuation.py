"""A run that stops in the middle and goes on has the records, weights and moments of one that did not."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from toy_run import FinishedRun, JobMaker, RunTwice, run_training

from deepwire.errors import UsageError
from deepwire.model.recurrent_depth import RecurrentStack
from deepwire.training import compilation
from deepwire.training.extras import update_seed

NOISE = {"source": {"cutoff": 0.1, "unknown": 0.1, "replace": 0.1}, "target": 0.1}


def both(**settings: object) -> dict[str, Any]:
    """A model whose sides have the same settings, and three layers."""
    return {side: {"layers": 3} | settings for side in ("encoder", "decoder")}


FEATURES: dict[str, dict[str, Any]] = {
    "ema beside": {"ema": {"decay": 0.9, "model": "weights"}},
    "rate factors": {"rate_factors": {"*": 0.5, "decoder.*": 0.3}},
    "SimCut": {
        "sim_cut": {"alpha": 3, "p_cut": 0.2},
        "input_noise": NOISE,
        "ema": {"decay": 0.9, "start": 4},
    },
    "R-Drop": {"r_drop": 2, "freeze": "decoder.*", "optimizer": {"type": "muon", "weight_decay": 0.1}},
    "LayerDrop": {"model": both(connection="depth_lstm"), "layer_drop": 0.5, "optimizer": "muon"},
    "sub-layers": {
        "model": both(connection="post_norm"),
        "layer_drop": {"encoder": 0.3, "unit": "sublayer"},
        "record": {"gradients": 1},
    },
    "stochastic depth": {
        "model": both(connection="pre_norm"),
        "layer_drop": {"encoder": 0.4, "decoder": 0.4, "depth": "linear", "rescale": True},
    },
    "compiled": {"model": both(layers=1), "compile": True, "activation_checkpointing": True},
    "compiled and left out": {
        "model": both(connection="post_norm"),
        "compile": True,
        "layer_drop": 0.3,
        "r_drop": 1,
        "activation_checkpointing": True,
    },
    "Admin": {"model": both(connection="admin")},
    "BranchNorm": {"model": both(connection={"type": "branch_norm", "updates": 9})},
    "CompleteP": {"model": {"parametrization": {"base": {"d_model": 8, "heads": 2, "encoder_layers": 1}}}},
}
SLOW = {
    "ema beside",
    "rate factors",
    "LayerDrop",
    "stochastic depth",
    "compiled and left out",
    "Admin",
    "CompleteP",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in FEATURES]
)
def test_a_run_goes_on_exactly(
    name: str, run_whole_and_halved: RunTwice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "BACKEND", "aot_eager")  # kernels would take minutes to make
    whole, halved = run_whole_and_halved(10, **{"validation": {"every": 5}, **FEATURES[name]})
    assert halved == whole
    for key in ("sim_cut", "r_drop"):
        recorded = [record.get(key) for record in whole.records if record["kind"] == "train"]
        assert all(isinstance(value, float) and value > 0 for value in recorded) == (key in FEATURES[name])
    if name == "R-Drop":
        assert " kl 0." in whole.directory.log.read_text()


def test_updates_of_other_numbers_of_rounds_too(
    run_whole_and_halved: RunTwice, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    forward = RecurrentStack.forward

    def noting(self: RecurrentStack, *given: Any, **named: Any) -> Any:
        if self.training:
            seen.append(self.training_rounds)
        return forward(self, *given, **named)

    monkeypatch.setattr(RecurrentStack, "forward", noting)
    recurrence = {"prelude": 1, "coda": 1, "rounds": 4, "backward": 2}
    model = {"encoder": {"layers": 3, "recurrence": recurrence}}
    whole, halved = run_whole_and_halved(10, model=model, validation={"every": 5})
    assert halved == whole
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    assert len(set(seen)) > 3


@pytest.mark.parametrize(("before", "now"), [pytest.param(10, 20, marks=pytest.mark.slow), (20, 10)])
def test_a_run_whose_length_changes_in_time_is_the_one_of_that_length(
    before: int, now: int, make_job: JobMaker
) -> None:
    schedule = {"type": "wsd", "peak": 0.01, "warmup": 2, "decay": 0.5}
    settings = {"schedule": schedule, "validation": {"every": 5}}
    straight, changed = (make_job(name, max_updates=now, **settings) for name in ("straight", "changed"))
    run_training(straight, quiet=True)
    run_training(make_job("changed", max_updates=before, stop_after="5u", **settings), quiet=True)
    run_training(changed, quiet=True)
    assert FinishedRun.of(changed.run, now) == FinishedRun.of(straight.run, now)
    assert f"changed: training.max_updates: {before} -> {now}" in changed.run.log.read_text()


def test_a_run_goes_on_only_as_it_was_begun(make_job: JobMaker) -> None:
    factors = {"*": 0.5, "decoder.*": 0.3}
    run_training(make_job(max_updates=2, rate_factors=factors), quiet=True)
    others: dict[str, Any] = {
        "freeze": ["encoder.*"],
        "ema": {"decay": 0.9},
        "r_drop": 1.0,
    }
    for name, value in others.items():
        with pytest.raises(UsageError, match=rf"training\.{name}"):
            run_training(make_job(**{"max_updates": 4, "rate_factors": factors, name: value}), quiet=True)


@pytest.mark.parametrize("purpose", ["", "process 3", "layers", "rounds"])
def test_seeds_of_updates_stay_as_they_are(purpose: str) -> None:
    """Finished runs must come out the same when they are made again."""
    text = f"7 update 12 {purpose}".rstrip()
    digest = hashlib.blake2b(text.encode(), digest_size=7).digest()
    assert update_seed(7, 12, purpose) == int.from_bytes(digest, "little")
