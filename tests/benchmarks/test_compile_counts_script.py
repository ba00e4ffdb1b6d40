"""One graph of a layer serves batches of every size, whatever its sockets hold, and computes the same."""

from __future__ import annotations

import compile_counts
import pytest

from deepwire.testing import small_model
from deepwire.training import compilation

SYSTEMS = dict(compile_counts.systems())
FEW = ("mixer self_attention", "mixer luna", "mixer gla")
# Of layers with these some run as they are: a graph would hold every position, or chunk, of one length.
LEFT_OUT = {"ln_lstm", "gru", "atr", "gla", "mlstm", "mamba2", "gated_deltanet", "per_layer", "rnmt"}


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in SYSTEMS]
)
def test_a_layer_is_compiled_once_or_not_at_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "BACKEND", "eager")  # makes no kernels
    counts = compile_counts.count(SYSTEMS[name])
    layers = sum(len(stack.layers) for stack in small_model(SYSTEMS[name]).stacks().values())
    assert counts.breaks == counts.recompiled == 0
    assert name == "dropout" or counts.error < 1e-8
    left_out = not LEFT_OUT.isdisjoint(name.split())
    assert (counts.graphs < layers) == left_out
    assert len(counts.reasons) == 2 * left_out  # one of each stack
