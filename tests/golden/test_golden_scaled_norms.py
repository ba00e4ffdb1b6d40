"""Connections that scale or place norms in other ways, against their authors' code or the papers' equations.

The sub-layers are given functions of one position, so that nothing but the connection is tested; those of
Sub-LN are attention and feed-forward with norms inside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
import torch
from given_functions import DIM, GivenFunction, below, close, given_stack, golden_case
from golden_names import GRADIENT_TOLERANCE, OUTPUT_TOLERANCE, deviation
from torch import nn

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.connections.admin import Admin
from deepwire.model.connections.scaled_post_norm import deepnorm_residual_scale
from deepwire.model.context import Context, Memory
from deepwire.model.initialization import deepnorm_gain, sub_ln_gain
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import Side


def stack_of(connection: object, side: Side, layers: Mapping[Side, int]) -> tuple[Stack, list[GivenFunction]]:
    """A stack whose sub-layers are functions, in a model with so many layers."""
    stacks = {each: {"layers": count, "connection": connection} for each, count in layers.items()}
    return given_stack(connection, side, layers[side], **stacks)


PLAIN = {r"norm(\d)\.": r"norms.\1."}
OUTPUT_NORMS = {r"norm_out(\d)\.": r"output_norms.\1.", r"norm(\d)\.": r"norms.\1.", r"final": "final_norm"}
CASES: dict[str, tuple[object, Side, dict[Side, int], Mapping[str, str]]] = {
    "deepnorm_encoder": ("deepnorm", "encoder", {"encoder": 2, "decoder": 3}, PLAIN),
    "deepnorm_decoder": ("deepnorm", "decoder", {"encoder": 3, "decoder": 2}, PLAIN),
    "deepnorm_single": (
        {"type": "deepnorm", "residual_scale": deepnorm_residual_scale("encoder", 2, 0)},
        "encoder",
        {"encoder": 2, "decoder": 1},
        PLAIN,
    ),
    "keel": (
        "keel",
        "encoder",
        {"encoder": 2, "decoder": 1},
        {r"norm_out(\d)\.": r"norms.\1.", r"norm(\d)\.": r"input_norms.\1."},
    ),
    "admin_encoder": (
        "admin",
        "encoder",
        {"encoder": 2, "decoder": 1},
        {**PLAIN, r"omega(\d)": r"scales.\1"},
    ),
    "b2t_encoder": ("b2t", "encoder", {"encoder": 2, "decoder": 1}, PLAIN),
    "b2t_decoder": ("b2t", "decoder", {"encoder": 1, "decoder": 2}, PLAIN),
    "resi_dual_encoder": ("resi_dual", "encoder", {"encoder": 2, "decoder": 1}, PLAIN),
    "resi_dual_decoder": ("resi_dual", "decoder", {"encoder": 1, "decoder": 1}, PLAIN),
    "peri_ln": ("peri_ln", "encoder", {"encoder": 2, "decoder": 1}, OUTPUT_NORMS),
    "layer_scale": (
        "layer_scale",
        "encoder",
        {"encoder": 2, "decoder": 1},
        {**OUTPUT_NORMS, r"scale(\d)": r"scales.\1"},
    ),
}


def own_parameter(
    name: str, stack: Stack, functions: list[GivenFunction], renamed: Mapping[str, str]
) -> nn.Parameter:
    """Where a golden parameter lies."""
    if found := re.fullmatch(r"F(\d)\.(\w+)", name):
        return functions[int(found[1])].get_parameter(found[2])
    for pattern, ours in renamed.items():
        if re.match(pattern, name):
            name = re.sub(pattern, ours, name, count=1)
            break
    return stack.connection.get_parameter(name.replace(".gain", ".weight"))


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(name: str) -> None:
    """The result of a stack, and the gradients of its input and of every parameter."""
    connection, side, layers, renamed = CASES[name]
    golden = golden_case(name)
    stack, functions = stack_of(connection, side, layers)
    places = {each: own_parameter(each, stack, functions, renamed) for each in below(golden, "p.")}
    assert {id(place) for place in places.values()} == {id(place) for place in stack.parameters()}
    with torch.no_grad():
        for each, place in places.items():
            place.copy_(golden[f"p.{each}"])
    x = golden["in.x"].clone().requires_grad_()
    memory = [None] * layers[side] if side == "decoder" else []
    (result,), *_ = stack(x, Context(memory=tuple(memory)))  # type: ignore[arg-type]
    assert close(result, golden["out.result"], OUTPUT_TOLERANCE)
    (result * golden["ct.result"]).sum().backward()
    assert close(x.grad, golden["g.in.x"], GRADIENT_TOLERANCE)
    for each, place in places.items():
        assert close(place.grad, golden[f"g.p.{each}"], GRADIENT_TOLERANCE), each


def test_profile_of_admin() -> None:
    """The scales that one pass over a batch sets, and what that pass gives."""
    connection, side, layers, renamed = CASES["admin_encoder"]
    golden = golden_case("admin_encoder")
    stack, functions = stack_of(connection, side, layers)
    with torch.no_grad():
        for name, value in below(golden, "p.").items():
            if not name.startswith("omega"):
                own_parameter(name, stack, functions, renamed).copy_(value)
        stack.connection.profiling = True
        (result,), *_ = stack(golden["in.profile"], Context())
    assert close(result, golden["out.profile_result"], OUTPUT_TOLERANCE)
    assert isinstance(stack.connection, Admin)
    for scale, expected in zip(stack.connection.scales, golden["out.omega_start"], strict=True):
        assert deviation(scale, expected.expand(DIM)) < OUTPUT_TOLERANCE


def sub_ln_places(layer: str, part: str, leaf: str) -> tuple[str, slice]:
    """Where a parameter of Sub-LN lies, and in which rows."""
    leaf = leaf.replace("gain", "weight")
    everything = slice(None)
    if part in ("self.inner_norm", "ffn.inner_norm"):
        return f"{'mixers' if part[0] == 's' else 'feed_forwards'}.{layer}.inner_norm.{leaf}", everything
    if part.startswith("ffn."):
        return f"feed_forwards.{layer}.{'input' if part[-1] == '1' else 'output'}.{leaf}", everything
    kind, _, matrix = part.partition(".")
    if kind == "self":
        rows = {"q": slice(0, DIM), "k": slice(DIM, 2 * DIM), "v": slice(2 * DIM, 3 * DIM)}
        own = "query_key_value" if matrix in rows else "output"
        return f"mixers.{layer}.{own}.{leaf}", rows.get(matrix, everything)
    assert kind == "cross"
    rows = {"k": slice(0, DIM), "v": slice(DIM, 2 * DIM)}
    own = "key_value" if matrix in rows else {"q": "query", "o": "output"}[matrix]
    return f"crosses.{layer}.{own}.{leaf}", rows.get(matrix, everything)


@pytest.mark.parametrize(("name", "layers", "heads"), [("subln_encoder", 2, 4), ("subln_decoder", 1, 2)])
def test_sub_ln(name: str, layers: int, heads: int) -> None:
    """Norms inside self-attention and feed-forward sub-layers, but not in cross-attention."""
    golden = golden_case(name)
    side: Side = "encoder" if name == "subln_encoder" else "decoder"
    config = ModelConfig.model_validate(
        {
            "d_model": DIM,
            "heads": heads,
            "feed_forward": 32,
            "activation": "gelu",
            "dropout": 0.0,
            "norm_eps": 1e-5,
            "bias": {"attention": True, "feed_forward": "both"},
            "inner_norm": True,
            side: {"layers": layers, "connection": {"type": "pre_norm", "final_norm": False}},
        }
    )
    model = build_model(config, 8, 8)
    stack = model.encoder if side == "encoder" else model.decoder
    order = ["self_norm", "ffn_norm"] if side == "encoder" else ["self_norm", "cross_norm", "ffn_norm"]
    places: dict[str, tuple[nn.Parameter, slice]] = {}
    for each in below(golden, "p."):
        found = re.fullmatch(r"layer(\d)\.(.+)\.(\w+)", each)
        assert found
        layer, part, leaf = found.groups()
        if part in order:
            index = int(layer) * len(order) + order.index(part)
            place, rows = f"connection.norms.{index}.{leaf.replace('gain', 'weight')}", slice(None)
        else:
            place, rows = sub_ln_places(layer, part, leaf)
        places[each] = (stack.get_parameter(place), rows)
    assert {id(place) for place, _ in places.values()} == {id(place) for place in stack.parameters()}
    with torch.no_grad():
        for each, (parameter, rows) in places.items():
            parameter[rows].copy_(golden[f"p.{each}"])
    x = golden["in.x"].clone().requires_grad_()
    memory: tuple[Memory, ...] = ()
    if side == "decoder":
        bias = torch.zeros(2, 1, 1, golden["in.memory"].size(1))
        memory = stack.project_memory([golden["in.memory"]], Context(padding=bias))
    (result,), *_ = stack(x, Context(memory=tuple(memory)))
    assert close(result, golden["out.result"], OUTPUT_TOLERANCE)
    (result * golden["ct.result"]).sum().backward()
    assert close(x.grad, golden["g.in.x"], GRADIENT_TOLERANCE)
    for each, (parameter, rows) in places.items():
        assert parameter.grad is not None
        assert close(parameter.grad[rows], golden[f"g.p.{each}"], GRADIENT_TOLERANCE), each


# Of N encoder and M decoder layers: alpha, beta and gain of Sub-LN in encoder, decoder, and an encoder alone.
CONSTANTS = {
    (6, 6): (
        (1.417938140685523, 0.49698924077132345, 1.5472883809593705),
        (2.0597671439071177, 0.34329452398451965, 1.70010933704164),
        (1.8612097182041991, 0.37991784282579627, 1.5763586678760644),
    ),
    (12, 6): (
        (1.686222125536953, 0.41791647098427115, 1.7498339955846698),
        (2.0597671439071177, 0.34329452398451965, 1.70010933704164),
        (2.213363839400643, 0.3194715521231362, 1.782709687623856),
    ),
    (6, 2): (
        (1.3238452033440815, 0.5323129911411864, 1.2182439574931083),
        (1.5650845800732873, 0.45180100180492244, 1.3385661990458504),
        (1.8612097182041991, 0.37991784282579627, 1.5763586678760644),
    ),
}


@pytest.mark.parametrize(("encoder", "decoder"), CONSTANTS)
def test_constants(encoder: int, decoder: int) -> None:
    """The constants of DeepNorm and Sub-LN, as the makers of the golden cases computed them."""
    stacks: list[tuple[Side, int, int]] = [
        ("encoder", encoder, decoder),
        ("decoder", decoder, encoder),
        ("encoder", encoder, 0),
    ]
    for stack, expected in zip(stacks, CONSTANTS[encoder, decoder], strict=True):
        found = [constant(*stack) for constant in (deepnorm_residual_scale, deepnorm_gain, sub_ln_gain)]
        assert found == pytest.approx(expected, rel=1e-12)
