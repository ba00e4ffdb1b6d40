"""GLA, mLSTM, Mamba-2 and Gated DeltaNet: in models, in narrow number formats, over long text, in size."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d

from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.head_states import ShortConvolution
from deepwire.model.mixers.mixer import Mixer
from deepwire.model.mixers.mlstm import matrix_lstm
from deepwire.testing import small_model

KINDS = ("gla", "mlstm", "mamba2", "gated_deltanet")
OPTIONS: list[Mapping[str, object]] = [
    {"type": "gla", "heads": 2, "expand_key": 1.0, "gate_divisor": 1.0, "gate_rank": 3},
    {"type": "mlstm", "heads": 3},
    {"type": "mamba2", "expand": 1.3, "state_size": 3, "convolution": 2},
    {"type": "gated_deltanet", "convolution": None, "negative_eigenvalues": True},
]


def mixer(settings: Mapping[str, object], **model: object) -> Mixer:
    """The second mixer of a small decoder."""
    found = small_model({**model, "decoder": {"mixer": settings}}).decoder.mixers[1]
    assert isinstance(found, Mixer)
    return found


def steps(built: Mixer, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All positions, one after the other, and the last state."""
    state, outputs = built.init_state(len(x), x), []
    for position in range(x.size(1)):
        output, state = built.step(
            x[:, position : position + 1], state, Context(index=CacheIndex(len(x), position=position))
        )
        outputs.append(output)
    return torch.cat(outputs, 1), state


@pytest.mark.parametrize("settings", [*({"type": name} for name in KINDS), *OPTIONS], ids=str)
def test_a_long_text_is_read_alike_at_once_and_step_by_step(settings: Mapping[str, object]) -> None:
    """Over several chunks, in float32."""
    torch.manual_seed(1)
    built, x = mixer(settings), torch.randn(2, 150, 16)
    with torch.no_grad():
        torch.testing.assert_close(built(x, Context()), steps(built, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("whole_model", [False, True])
def test_half_precision(name: str, whole_model: bool) -> None:
    """Under autocast and in a bfloat16 model; matrices stay float32 from step to step."""
    torch.manual_seed(1)
    built, x = mixer({"type": name}), torch.randn(2, 70, 16)
    expected = built(x, Context()).detach()
    scale = float(expected.abs().max())
    if whole_model:
        built, x = built.bfloat16(), x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=not whole_model):
        found = built(x, Context())
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1 * scale)
        found.float().sum().backward()
        one_by_one, state = steps(built, x)
    torch.testing.assert_close(one_by_one, found, rtol=0.05, atol=0.05 * scale)
    assert state[0].dtype == torch.float32
    assert all(parameter.grad.isfinite().all() for parameter in built.parameters())


@pytest.mark.parametrize("size", [1e3, -1e3])
def test_gates_of_an_mlstm_may_be_of_any_size(size: float) -> None:
    """exp(1000) is no number of float32; of ever larger inputs the last remains, of tiny ones nothing."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 20, 4).requires_grad_()
    input_gate = (size * torch.arange(1, 21) / 20).expand(1, 2, 20).clone().requires_grad_()
    forget_gate = torch.full((1, 2, 20), 50.0, requires_grad=True)
    found = matrix_lstm(query, key, value, input_gate, forget_gate)
    (found.sum()).backward()
    # n . q is k . q / 2 times the gate, far from 1.
    expected = value * (key * query).sum(-1, keepdim=True).sign() if size > 0 else torch.zeros_like(value)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert input_gate.grad.isfinite().all()
    assert forget_gate.grad.isfinite().all()


def test_a_short_convolution_is_a_convolution() -> None:
    """Each channel alone, from zeros; and so is every step with what came before."""
    short = ShortConvolution(3, 4, bias=True)
    x = torch.randn(2, 9, 3)
    padded = nn.functional.pad(x.transpose(1, 2), (3, 0))
    expected = conv1d(padded, short.weight.unsqueeze(1), short.bias, groups=3).transpose(1, 2)
    torch.testing.assert_close(short(x), expected)
    tail = short.empty_tail(2, x)
    for position in range(9):
        found, tail = short.continued(x[:, position : position + 1], tail)
        torch.testing.assert_close(found, expected[:, position : position + 1])
    torch.testing.assert_close(short.continued(x, short.empty_tail(2, x)), (expected, tail))
