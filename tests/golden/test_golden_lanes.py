"""Attention residuals and connections with several lanes, against their authors' code or that of others.

The sub-layers are given functions of one position, so that nothing but the connection is tested.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import pytest
import torch
from given_functions import DIM, GivenFunction, below, close, given_stack, golden_case
from golden_names import GRADIENT_TOLERANCE, OUTPUT_TOLERANCE
from torch import Tensor, nn

from deepwire.model.connections.attn_res import AttnRes
from deepwire.model.connections.manifold import ManifoldWeights
from deepwire.model.context import Context
from deepwire.model.layers import RMSNorm
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import Side


class Golden(NamedTuple):
    """What a case is made of: the connection, the side, and its layers."""

    connection: Mapping[str, object]
    side: Side
    layers: int


CASES = {
    "attn_res_full": Golden({"type": "attn_res", "block": "full"}, "encoder", 2),
    "attn_res_block2": Golden({"type": "attn_res", "block": 2}, "encoder", 2),
    "attn_res_block3": Golden({"type": "attn_res", "block": 3}, "encoder", 3),
    "hyper_static_n2": Golden({"type": "hyper", "lanes": 2, "dynamic": False}, "encoder", 2),
    "hyper_dynamic_n2": Golden({"type": "hyper", "lanes": 2}, "encoder", 2),
    "hyper_dynamic_n4": Golden({"type": "hyper", "lanes": 4}, "encoder", 2),
    "mhc_lite_n2": Golden({"type": "mhc_lite", "lanes": 2}, "decoder", 1),
    "mhc_lite_n4": Golden({"type": "mhc_lite", "lanes": 4}, "decoder", 1),
    "mhc_n2": Golden({"type": "mhc", "lanes": 2, "rounds": 20}, "decoder", 1),
    "mhc_n4_head": Golden({"type": "mhc", "lanes": 4, "rounds": 10, "end": "head"}, "decoder", 1),
}
# Ours of a golden name.
RENAMED = {
    r"norm(\d)\.": r"norms.\1.",
    r"final\.": "final_norm.",
    r"hc(\d)\.W_read": r"weights.\1.read_map",
    r"hc(\d)\.W_mix": r"weights.\1.mix_map",
    r"hc(\d)\.w_write": r"weights.\1.write_map",
    r"hc(\d)\.scale_width": r"weights.\1.width_scale",
    r"hc(\d)\.scale_depth": r"weights.\1.depth_scale",
    r"(?:hc|mhc|lite)(\d)\.": r"weights.\1.",
}
LITE_ORDER = ("read", "write", "mix")


def own_name(name: str, count: int) -> str:
    """Where a golden parameter of a connection lies."""
    if found := re.fullmatch(r"res(\d|_end)\.(w|norm\.gain)", name):
        number = count - 1 if found[1] == "_end" else int(found[1]) - 1
        return f"queries.{number}.{'query' if found[2] == 'w' else 'gain'}"
    for pattern, ours in RENAMED.items():
        if re.match(pattern, name):
            name = re.sub(pattern, ours, name, count=1)
            break
    if name.startswith(("norms.", "final_norm.")):
        return name.replace(".gain", ".weight")
    return name.replace("Phi", "projection").replace("norm.gain", "gain")


def joined(golden: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Golden parameters or gradients; those of mHC-lite that are one of ours side by side, in our order."""
    values = below(golden, prefix)
    for number in {name[4] for name in values if name.startswith("lite")}:
        lite = f"lite{number}"
        maps = [values.pop(f"{lite}.W_{part}") for part in LITE_ORDER]
        values[f"{lite}.projection"] = torch.cat(maps, -1).T
        values[f"{lite}.base"] = torch.cat([values.pop(f"{lite}.b_{part}") for part in LITE_ORDER])
        read, mix, write = values[f"{lite}.scale"]
        values[f"{lite}.scale"] = torch.stack((read, write, mix))
    return values


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, Stack, dict[str, nn.Parameter]]:
    """A case: its name, our stack, and our parameters by the golden names."""
    golden = golden_case(request.param)
    stack, functions = given_stack(**CASES[request.param]._asdict())
    connection = stack.connection
    if isinstance(connection, AttnRes):  # its authors' models have RMS norms
        connection.norms = nn.ModuleList(RMSNorm(DIM, 1e-6) for _ in connection.norms)
        connection.final_norm = RMSNorm(DIM, 1e-6)
    values, places = joined(golden, "p."), {}
    for name in values:
        places[name] = place_of(name, stack, functions)
    assert {id(place) for place in places.values()} == {id(each) for each in stack.parameters()}
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(values[name].reshape(place.shape))
    return request.param, stack, places


def place_of(name: str, stack: Stack, functions: list[GivenFunction]) -> nn.Parameter:
    """Our parameter of a golden name."""
    if found := re.fullmatch(r"F(\d)\.(\w+)", name):
        return functions[int(found[1])].get_parameter(found[2])
    return stack.connection.get_parameter(own_name(name, len(functions)))


def result_of(stack: Stack, x: Tensor, side: Side) -> Tensor:
    """The result of a stack of given functions."""
    memory = [None] * len(stack.mixers) if side == "decoder" else []
    (result,), _, _ = stack(x, Context(memory=tuple(memory)))  # type: ignore[arg-type]
    return result


def test_outputs_and_gradients(case: tuple[str, Stack, dict[str, nn.Parameter]]) -> None:
    """The result of a stack, and the gradients of its input and of every parameter."""
    name, stack, places = case
    golden = golden_case(name)
    x = golden["in.x"].clone().requires_grad_()
    result = result_of(stack, x, CASES[name].side)
    assert close(result, golden["out.result"], OUTPUT_TOLERANCE)
    (result * golden["ct.result"]).sum().backward()
    assert close(x.grad, golden["g.in.x"], GRADIENT_TOLERANCE)
    for each, expected in joined(golden, "g.p.").items():
        assert close(places[each].grad, expected.reshape(places[each].shape), GRADIENT_TOLERANCE), each


def test_weights_of_the_last_read(case: tuple[str, Stack, dict[str, nn.Parameter]]) -> None:
    """The weights of sources, and the matrices that mix lanes, where the authors' code shows them."""
    name, stack, _ = case
    golden = golden_case(name)
    seen: list[Tensor] = []
    if "out.weights" in golden:
        query = stack.connection.get_submodule(f"queries.{len(stack.calls) - 1}")
        query.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
        expected = [golden["out.weights"]]
    else:
        expected = [value for each, value in sorted(golden.items()) if each.startswith("out.mix")]
        for weights in stack.connection.weights if expected else ():
            assert isinstance(weights, ManifoldWeights)
            watch_mix(weights, seen)
    result_of(stack, golden["in.x"], CASES[name].side)
    assert len(seen) == len(expected)
    for found, wanted in zip(seen, expected, strict=True):
        assert close(found, wanted, OUTPUT_TOLERANCE)


def watch_mix(weights: ManifoldWeights, seen: list[Tensor]) -> None:
    """Note the matrices that mix lanes."""
    mix = weights.mix

    def watched(logits: Tensor) -> Tensor:
        seen.append(mix(logits))
        return seen[-1]

    weights.mix = watched  # type: ignore[method-assign]
