"""What a program finds after a call: torch's settings, signal handlers and random numbers as before."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from reversed_words import SETTINGS

import deepwire
from deepwire.ops import precision, process


@pytest.fixture(autouse=True)
def _settings_of_a_program(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Other values than torch's own, on a machine where every choice would be another."""
    monkeypatch.setattr(precision, "_medium_is_true_and_faster", lambda: True)
    threads, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    process.allow_float32_choice(False)
    torch.set_num_threads(3)
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(products)


def state() -> dict[str, object]:
    """All that may not change. Without flushing, the smallest number is not zero."""
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals() if number < 32}
    return {
        "threads": torch.get_num_threads(),
        "products": torch.get_float32_matmul_precision(),
        "random numbers": torch.get_rng_state().tolist(),
        "handlers": handlers,
        "denormals": torch.tensor([1e-323], dtype=torch.float64).mul(1).item(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default type": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "garbage": gc.isenabled(),
    }


def test_a_quick_start_that_fails_leaves_the_search_for_garbage_on() -> None:
    with pytest.raises(ValueError, match="no model"), process.quick_start():
        raise ValueError("no model")
    assert gc.isenabled()


@pytest.mark.parametrize("number_format", ["fp32", "bf16"])
@pytest.mark.parametrize("call", [deepwire.train, deepwire.dry_run])
def test_training_gives_everything_back(
    call: Callable[..., object], number_format: str, data: dict[str, object], tmp_path: Path
) -> None:
    before = state()
    training = {"precision": number_format, "threads": 1, "max_updates": 1}
    call(SETTINGS, data=data, run=str(tmp_path / "run"), training=training)
    assert state() == before


def test_handlers_are_set_where_asked_for_and_given_back(data: dict[str, object], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": data, "run": str(tmp_path / "run"), "quiet": True}
    before = state()
    with deepwire.training_session(SETTINGS, handle_signals=True, **settings) as session:
        for update in session:
            if update.number == 3:
                signal.raise_signal(signal.SIGTERM)
    assert state() == before
    assert session.stop_reason is not None
    assert (session.stop_reason.reason, session.stop_reason.exit_code) == ("SIGTERM", 143)
    assert session.update == 3


def test_an_interrupt_is_that_of_python_unless_asked_otherwise(
    data: dict[str, object], tmp_path: Path
) -> None:
    class Interrupt(deepwire.Callback):
        def after_update(self, session: object, update: object) -> None:
            signal.raise_signal(signal.SIGINT)

    before = state()
    with pytest.raises(KeyboardInterrupt):
        deepwire.train(SETTINGS, data=data, run=str(tmp_path / "run"), quiet=True, callbacks=[Interrupt()])
    assert state() == before


@pytest.mark.parametrize("number_format", ["fp32", "auto"])
def test_loading_and_translating_change_nothing(trained: deepwire.Run, number_format: str) -> None:
    before = state()
    model = deepwire.load(trained, "cpu", number_format)
    assert state() == before
    lines = model.translate(["a b c", "d e"])
    assert len(list(model.score([("a b", "b a")]))) == 1
    assert len(model.sample(["a b"], 3)[0]) == 3
    assert state() == before
    deepwire.evaluate(model, list(lines), source=["a b c", "d e"], metrics="chrf")
    assert state() == before


def test_configuring_the_process_is_what_changes_it(
    trained: deepwire.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []
    monkeypatch.setattr("deepwire.ops.allocator.keep_memory", lambda: kept.append(True))
    try:
        deepwire.configure_process(threads=2)
        assert kept == [True]
        assert (state()["threads"], state()["denormals"]) == (2, 0.0)
        assert state()["products"] == "high"  # nothing was loaded yet
        deepwire.load(trained, "cpu", "fp32")
        assert state()["products"] == "medium"
    finally:
        torch.set_flush_denormal(False)
        process.allow_float32_choice(False)
