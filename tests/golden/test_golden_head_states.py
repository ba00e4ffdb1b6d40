"""GLA, mLSTM, Mamba-2 and Gated DeltaNet: recurrences and layers, whole and step by step, and the states."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from given_functions import DIM, close, golden_case
from golden_names import GRADIENT_TOLERANCE, OUTPUT_TOLERANCE
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.gated_deltanet import GatedDeltaNet, GatedDeltaNetConfig
from deepwire.model.mixers.mamba2 import StateSpace
from deepwire.model.mixers.mlstm import matrix_lstm, matrix_lstm_step
from deepwire.ops.gated_product import gated_delta_product, gated_delta_step, gated_product, gated_step

Tensors = dict[str, Tensor]


def differentiable(golden: Tensors, *names: str) -> list[Tensor]:
    """Inputs of a case that gradients are wanted of."""
    return [golden[f"in.{name}"].clone().requires_grad_() for name in names]


def check_whole(golden: Tensors, output: Tensor, leaves: Mapping[str, Tensor]) -> None:
    """The output, in the layout of the case, and the gradients of all that went in."""
    assert close(output, golden["out.result"], OUTPUT_TOLERANCE)
    (output * golden["ct.result"]).sum().backward()
    wanted = {name for name in golden if name.startswith("g.")}
    assert {f"g.{name}" for name in leaves} == wanted
    for name, leaf in leaves.items():
        assert close(leaf.grad, golden[f"g.{name}"], GRADIENT_TOLERANCE), name


def check_steps(
    golden: Tensors, step: Callable[..., tuple[Tensor, Tensor]], inputs: list[Tensor], state: Tensor
) -> None:
    """Output and state of every position, of inputs `[B, T, H, ...]`."""
    for position in range(inputs[0].size(1)):
        output, state = step(state, *(each[:, position] for each in inputs))
        assert close(output, golden["out.step"][:, position], OUTPUT_TOLERANCE)
        assert close(state, golden["out.states"][position], OUTPUT_TOLERANCE)


def heads_first(x: Tensor) -> Tensor:
    """`[B, T, H, m]` as `[B, H, T, m]`, and back."""
    return x.transpose(1, 2)


def test_recurrence_of_gla() -> None:
    golden = golden_case("gla_recurrence")
    query, key, value, decay = leaves = differentiable(golden, "q", "k", "v", "g")
    scale = query.size(-1) ** -0.5
    output = gated_product(*map(heads_first, (query * scale, key, value, decay)))
    check_whole(golden, heads_first(output), dict(zip(("in.q", "in.k", "in.v", "in.g"), leaves, strict=True)))
    with torch.no_grad():
        check_steps(golden, gated_step, [query * scale, key, value, decay], torch.zeros(2, 2, 8, 8))
        # From the state after three positions on.
        rest = [heads_first(each[:, 3:]) for each in (query * scale, key, value, decay)]
        later = gated_product(rest[0], rest[1], rest[2], rest[3], golden["out.states"][2])
    assert close(heads_first(later), golden["out.result"][:, 3:], OUTPUT_TOLERANCE)


def test_recurrence_of_the_gated_delta_rule() -> None:
    golden = golden_case("gated_delta_recurrence")
    names = ("q", "k", "v", "beta", "g")
    leaves = differentiable(golden, *names)
    query, key, value, beta, decay = leaves
    inputs = [query * query.size(-1) ** -0.5, key, value, beta.unsqueeze(-1), decay.unsqueeze(-1)]
    output = gated_delta_product(*map(heads_first, inputs))
    check_whole(
        golden, heads_first(output), {f"in.{name}": leaf for name, leaf in zip(names, leaves, strict=True)}
    )
    with torch.no_grad():
        check_steps(golden, gated_delta_step, inputs, torch.zeros(2, 2, 8, 8))
        rest = [heads_first(each[:, 3:]) for each in inputs]
        later = gated_delta_product(rest[0], rest[1], rest[2], rest[3], rest[4], golden["out.states"][2])
    assert close(heads_first(later), golden["out.result"][:, 3:], OUTPUT_TOLERANCE)


def test_cell_of_mlstm() -> None:
    """The step form keeps C, n and m."""
    golden = golden_case("mlstm_cell")
    names = ("q", "k", "v", "i", "f")
    leaves = differentiable(golden, *names)
    query, key, value, input_gate, forget_gate = leaves
    output = matrix_lstm(query, key, value, input_gate.squeeze(-1), forget_gate.squeeze(-1))
    check_whole(golden, output, {f"in.{name}": leaf for name, leaf in zip(names, leaves, strict=True)})
    state: tuple[torch.Tensor, ...] = torch.zeros(2, 2, 8, 9), torch.zeros(2, 2)
    with torch.no_grad():
        for position in range(query.size(2)):
            now = [each[:, :, position] for each in (query, key, value)]
            gates = [each[:, :, position, 0] for each in (input_gate, forget_gate)]
            output, state = matrix_lstm_step(state, *now, *gates)
            assert close(output, golden["out.step"][:, :, position], OUTPUT_TOLERANCE)
            assert close(state[0][..., :-1], golden["out.states_C"][position], OUTPUT_TOLERANCE)
            assert close(state[0][..., -1], golden["out.states_n"][position], OUTPUT_TOLERANCE)
            assert close(state[1], golden["out.states_m"][position], OUTPUT_TOLERANCE)


def test_recurrence_of_mamba2() -> None:
    """Step size, decay and skip included."""
    golden = golden_case("mamba2_recurrence")
    model = StateSpace(2)
    ours = {"A_log": model.rate.log_rate, "dt_bias": model.rate.step_bias, "D": model.skip}
    with torch.no_grad():
        for name, parameter in ours.items():
            parameter.copy_(golden[f"p.{name}"])
    names = ("x", "B", "C", "dt")
    leaves = differentiable(golden, *names)
    x, b, c, dt = leaves
    output = model(*map(heads_first, (x, b, c)), dt)
    inputs = {f"in.{name}": leaf for name, leaf in zip(names, leaves, strict=True)}
    check_whole(
        golden, heads_first(output), inputs | {f"p.{name}": parameter for name, parameter in ours.items()}
    )
    state = torch.zeros(2, 2, 6, 8)
    with torch.no_grad():
        for position in range(x.size(1)):
            output, state = model.step(state, *(each[:, position] for each in leaves))
            assert close(output, golden["out.result"][:, position], OUTPUT_TOLERANCE)
    assert close(state.transpose(-2, -1), golden["out.last_state"], OUTPUT_TOLERANCE)


DELTANETS: dict[str, dict[str, object]] = {
    "gated_deltanet_layer": {"expand_key": 0.75, "expand_value": 1.125},
    "gated_deltanet_layer_noconv": {"expand_key": 1.0, "expand_value": 1.0, "convolution": None},
}


def deltanet(
    golden: Tensors, settings: Mapping[str, object]
) -> tuple[GatedDeltaNet, dict[str, torch.Tensor]]:
    """Our mixer with the parameters of a case, and those that have one name there."""
    context = ModelConfig.model_validate({"d_model": DIM, "heads": 2}).specs()["decoder"]
    mixer = GatedDeltaNetConfig.model_validate(settings).build(context)
    assert isinstance(mixer, GatedDeltaNet)
    single: dict[str, torch.Tensor] = {
        "W_q": mixer.query.weight,
        "W_k": mixer.key.weight,
        "W_v": mixer.value.weight,
        "A_log": mixer.rate.log_rate,
        "dt_bias": mixer.rate.step_bias,
        "W_gate": mixer.output.gate.weight,
        "W_o": mixer.output.output.weight,
        "norm.gain": mixer.output.norm.get_parameter("weight"),
    }
    with torch.no_grad():
        for name, parameter in single.items():
            parameter.copy_(golden[f"p.{name}"])
        mixer.gates.weight.copy_(torch.cat((golden["p.W_a"], golden["p.W_b"])))
        if mixer.convolution is not None:
            mixer.convolution.weight.copy_(torch.cat([golden[f"p.conv_{each}"] for each in "qkv"]))
    return mixer, single


@pytest.mark.parametrize("name", DELTANETS)
def test_layer_of_gated_deltanet(name: str) -> None:
    """With short convolutions and without: output, gradients, steps and the last state."""
    golden = golden_case(name)
    mixer, single = deltanet(golden, DELTANETS[name])
    (x,) = differentiable(golden, "x")
    output = mixer(x, Context())
    assert close(output, golden["out.result"], OUTPUT_TOLERANCE)
    (output * golden["ct.result"]).sum().backward()
    assert close(x.grad, golden["g.in.x"], GRADIENT_TOLERANCE)
    for each, parameter in single.items():
        assert close(parameter.grad, golden[f"g.p.{each}"], GRADIENT_TOLERANCE), each
    gates = torch.cat((golden["g.p.W_a"], golden["g.p.W_b"]))
    assert close(mixer.gates.weight.grad, gates, GRADIENT_TOLERANCE)
    if mixer.convolution is not None:
        wanted = torch.cat([golden[f"g.p.conv_{each}"] for each in "qkv"])
        assert close(mixer.convolution.weight.grad, wanted, GRADIENT_TOLERANCE)
    state = mixer.init_state(len(x), x)
    with torch.no_grad():
        for position in range(x.size(1)):
            here = slice(position, position + 1)
            output, state = mixer.step(
                x[:, here], state, Context(index=CacheIndex(len(x), position=position))
            )
            assert close(output, golden["out.result"][:, here], OUTPUT_TOLERANCE)
    assert close(state[0], golden["out.last_state"], OUTPUT_TOLERANCE)
