"""SSRU, minGRU and minLSTM: outputs, gradients, steps and states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest
import torch
from given_functions import DIM, close, golden_case
from golden_names import GRADIENT_TOLERANCE, OUTPUT_TOLERANCE
from torch import Tensor, nn

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.layers import LayerNorm
from deepwire.model.mixers.linear_rnn import LinearRNN, MinGRUConfig, MinLSTMConfig, SSRUConfig
from deepwire.model.mixers.mixer import MixerSection


class Golden(NamedTuple):
    """The settings, and the names of the maps that are one matrix here."""

    settings: MixerSection
    maps: tuple[str, ...]


CASES: Mapping[str, Golden] = {
    "ssru": Golden(SSRUConfig(), ("W_f", "W")),
    "min_gru": Golden(MinGRUConfig(), ("W_z", "W_h")),
    "min_lstm": Golden(MinLSTMConfig(), ("W_f", "W_i", "W_h")),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, LinearRNN, dict[str, Tensor]]:
    """A case: its name, our mixer with its parameters, and its tensors."""
    golden = golden_case(request.param)
    settings, maps = CASES[request.param]
    context = ModelConfig.model_validate({"d_model": DIM, "heads": 2}).specs()["decoder"]
    mixer = settings.build(context)
    assert isinstance(mixer, LinearRNN)
    with torch.no_grad():
        mixer.maps.weight.copy_(torch.cat([golden[f"p.{name}"] for name in maps]))
        if "p.b_f" in golden:
            mixer.get_parameter("forget_bias").copy_(golden["p.b_f"])
    return request.param, mixer, golden


def test_outputs_and_gradients(case: tuple[str, LinearRNN, dict[str, Tensor]]) -> None:
    """Whole sequences; SSRU also with its residual and norm, as one loss has both."""
    name, mixer, golden = case
    x = golden["in.x"].clone().requires_grad_()
    output = mixer(x, Context())
    assert close(output, golden["out.result"], OUTPUT_TOLERANCE)
    loss = (output * golden["ct.result"]).sum()
    if "out.layer" in golden:
        norm = LayerNorm(DIM, eps=1e-5)
        norm.weight, norm.bias = (nn.Parameter(golden[f"p.norm.{leaf}"]) for leaf in ("gain", "bias"))
        layer = norm(output + x)
        assert close(layer, golden["out.layer"], OUTPUT_TOLERANCE)
        loss = loss + (layer * golden["ct.layer"]).sum()
    loss.backward()
    assert close(x.grad, golden["g.in.x"], GRADIENT_TOLERANCE)
    wanted = torch.cat([golden[f"g.p.{each}"] for each in CASES[name].maps])
    assert close(mixer.maps.weight.grad, wanted, GRADIENT_TOLERANCE)
    if "g.p.b_f" in golden:
        assert close(mixer.get_parameter("forget_bias").grad, golden["g.p.b_f"], GRADIENT_TOLERANCE)


def test_steps_and_states(case: tuple[str, LinearRNN, dict[str, Tensor]]) -> None:
    """The state after every position, step by step and at once, and the output of every step."""
    _, mixer, golden = case
    x, states = golden["in.x"], golden["out.states"]
    with torch.no_grad():
        assert close(mixer.cells(x).transpose(0, 1), states, OUTPUT_TOLERANCE)
        # Going on from the middle.
        later = mixer.cells(x[:, 3:], initial=states[:, 2])
        assert close(later.transpose(0, 1), states[:, 3:], OUTPUT_TOLERANCE)
        state = mixer.init_state(len(x), x)
        for position in range(x.size(1)):
            output, state = mixer.step(
                x[:, position : position + 1], state, Context(index=CacheIndex(len(x), position=position))
            )
            wanted = golden.get("out.step", golden["out.result"])[:, position : position + 1]
            assert close(output, wanted, OUTPUT_TOLERANCE)
            assert close(state[0], states[:, position], OUTPUT_TOLERANCE)
