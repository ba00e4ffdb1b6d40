"""Attention residuals and connections with several lanes, against their authors' code or that of others.

The sub-layers are given functions of one position, so that nothing but the connection is tested.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest
import torch
from given_functions import DIM, check_case, close, given_stack, golden_case, load_case, nothing_from
from golden_names import OUTPUT_TOLERANCE
from torch import Tensor, nn

from deepwire.model.connections.attn_res import AttnRes
from deepwire.model.connections.manifold import ManifoldWeights
from deepwire.model.context import Context
from deepwire.model.layers import RMSNorm
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import Side


class Golden(NamedTuple):
    """A case: the connection, the side, and its layers."""

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
# Where a golden parameter lies.
RENAMED = {
    r"norm(\d)\.(\w+)": r"connection.norms.\1.\2",
    r"final\.(\w+)": r"connection.final_norm.\1",
    r"hc(\d)\.W_(read|mix)": r"connection.weights.\1.\2_map",
    r"hc(\d)\.w_write": r"connection.weights.\1.write_map",
    r"hc(\d)\.scale_(width|depth)": r"connection.weights.\1.\2_scale",
    r"hc(\d)\.(read|mix|write)": r"connection.weights.\1.\2",
    r"(?:mhc|lite)(\d)\.(projection|base|scale|gain)": r"connection.weights.\1.\2",
    r"head\.(\w+)": r"connection.head.\1",
}
LITE_ORDER = ("read", "write", "mix")


def arranged(name: str) -> dict[str, Tensor]:
    """The tensors of a case; those of mHC-lite that are one of ours stand side by side, in our order."""
    golden = {each.replace("Phi", "projection"): tensor for each, tensor in golden_case(name).items()}
    for prefix in ("p.", "g.p."):
        for number in {each[len(prefix) + 4] for each in golden if each.startswith(f"{prefix}lite")}:
            lite = f"{prefix}lite{number}"
            maps = [golden.pop(f"{lite}.W_{part}") for part in LITE_ORDER]
            golden[f"{lite}.projection"] = torch.cat(maps, -1).T
            golden[f"{lite}.base"] = torch.cat([golden.pop(f"{lite}.b_{part}") for part in LITE_ORDER])
            read, mix, write = golden[f"{lite}.scale"]
            golden[f"{lite}.scale"] = torch.stack((read, write, mix))
            golden[f"{lite}.gain"] = golden.pop(f"{lite}.norm.gain")
    return golden


def built(name: str) -> tuple[Stack, dict[str, str], Context]:
    """The stack of a case, where golden parameters lie in it, and its memory."""
    stack, functions = given_stack(**CASES[name]._asdict())
    connection = stack.connection
    queries = {}
    if isinstance(connection, AttnRes):  # its authors' models have RMS norms
        connection.norms = nn.ModuleList(RMSNorm(DIM, 1e-6) for _ in connection.norms)
        connection.final_norm = RMSNorm(DIM, 1e-6)
        for number in range(1, len(functions) + 1):
            theirs = f"res{'_end' if number == len(functions) else number}"
            queries[rf"{theirs}\.w"] = f"connection.queries.{number - 1}.query"
            queries[rf"{theirs}\.norm\.gain"] = f"connection.queries.{number - 1}.gain"
    context = nothing_from(CASES[name].side, len(stack.mixers))
    return stack, {**functions, **RENAMED, **queries}, context


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(name: str) -> None:
    """The result of a stack, and the gradients of its input and of every parameter."""
    stack, renamed, context = built(name)
    check_case(stack, arranged(name), renamed, context)


@pytest.mark.parametrize("name", CASES)
def test_weights_of_the_last_read(name: str) -> None:
    """The weights of sources, and the matrices that mix lanes, where the authors' code shows them."""
    golden = arranged(name)
    stack, renamed, context = built(name)
    load_case(stack, golden, renamed)
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
    stack(golden["in.x"], context)
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
