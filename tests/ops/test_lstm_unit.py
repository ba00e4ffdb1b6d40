"""A unit of a depth-wise LSTM as one function: its gradients, and that both ways and the parts agree."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from deepwire.model.config import ModelConfig
from deepwire.model.connections.depth_lstm import DepthLSTM
from deepwire.model.context import Context
from deepwire.ops import lstm_unit as module
from deepwire.ops.lstm_unit import UnitOptions, lstm_unit

DIM = 8


def values(kind: torch.dtype, inner: int, second: int | None, gates: int = 3) -> list[Tensor]:
    """Output and cell below, attention, gates with gain and bias, hidden likewise, and the second map."""
    generator = torch.Generator().manual_seed(1)
    shapes: list[tuple[int, ...]] = [*[(3, 5, DIM)] * 3, (gates * DIM, 2 * DIM), *[(gates, DIM)] * 2]
    shapes += [(inner, 2 * DIM), (inner,), (inner,), *([(DIM, second)] if second else [])]
    return [torch.randn(shape, dtype=kind, generator=generator).requires_grad_() for shape in shapes]


def unit(options: UnitOptions, *given: Tensor) -> tuple[Tensor, Tensor]:
    output, cell, merged, gates, gain, bias, hidden, hidden_gain, hidden_bias, *second = given
    weights = (gates, gain, bias), (hidden, hidden_gain, hidden_bias)
    return lstm_unit((output, cell), merged, *weights, second[0] if second else None, options)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("gates", [2, 3])
@pytest.mark.parametrize(
    ("activation", "inner", "second"), [("glu", 12, 6), ("gelu", 12, 12), ("gelu", DIM, None)]
)
def test_gradients(activation: str, inner: int, second: int | None, gates: int, joint: bool) -> None:
    options = UnitOptions(getattr(functional, activation), 1e-6, joint, 0.0, 0.0)
    given = values(torch.float64, inner, second, gates)
    assert torch.autograd.gradcheck(lambda *each: unit(options, *each), given)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("gates", [2, 3])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("narrow", "tolerance"), [(False, 5e-6), (True, 3e-2)])
def test_the_c_functions_do_the_same(
    monkeypatch: pytest.MonkeyPatch, narrow: bool, tolerance: float, threads: int, gates: int, joint: bool
) -> None:
    """Results and gradients, with dropout; in bfloat16 they round once where torch rounds twice."""
    options = UnitOptions(functional.glu, 1e-6, joint, 0.1, 0.2)
    given = values(torch.float32, 12, 6, gates)
    if module._library(torch.float32, given[1], options) is None:
        pytest.skip("no C compiler")

    def passed() -> list[Tensor]:
        torch.manual_seed(3)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
            results = unit(options, *given)
        total = sum((result * result.detach().cos()).sum() for result in results)
        assert isinstance(total, Tensor)
        return [*results, *torch.autograd.grad(total, given)]

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = passed()
    finally:
        torch.set_num_threads(before)
    monkeypatch.setattr(module, "_library", lambda *_: None)
    for one, other in zip(compiled, passed(), strict=True):
        assert (one - other).norm() <= tolerance * other.norm()


def test_no_rows_have_gradients_of_zero() -> None:
    given = values(torch.float32, 12, 6)
    nothing = [x[:0] for x in given[:3]]
    output, cell = unit(UnitOptions(functional.glu, 1e-6, False, 0.1, 0.2), *nothing, *given[3:])
    assert not any(each.any() for each in torch.autograd.grad((output + cell).sum(), given))


@pytest.mark.parametrize("more", [{}, {"merge": "concat"}, {"merge": "two"}, {"direct_path": True}])
@pytest.mark.parametrize("hidden", ["glu", "gelu", "one_layer"])
def test_the_parts_of_the_model_do_the_same(
    monkeypatch: pytest.MonkeyPatch, hidden: str, more: Mapping[str, object]
) -> None:
    """Numbers dropped alike, too."""
    settings = {"connection": {"type": "depth_lstm", "hidden": hidden, **more}, "layers": 1}
    config = ModelConfig.model_validate(
        {"d_model": DIM, "heads": 2, "feed_forward": 12, "dropout": 0.2, "decoder": settings}
    )
    connection = config.decoder.connection.build(config.specs()["decoder"])
    assert isinstance(connection, DepthLSTM)
    attended = torch.randn(2, 3, 5, DIM, requires_grad=True)

    def passed(together: bool) -> list[Tensor]:
        monkeypatch.setattr("deepwire.model.connections.depth_lstm.pays", lambda *_: together)
        torch.manual_seed(2)
        state = connection.start(attended[0] + 1, Context())
        for call, output in enumerate(attended):
            state = connection.write(state, call, state[0], output, Context())
        used = [attended, *connection.gates.parameters(), *connection.hiddens.parameters()]
        return [*state, *torch.autograd.grad(state[0].sin().sum() + state[1].cos().sum(), used)]

    for one, other in zip(passed(True), passed(False), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
