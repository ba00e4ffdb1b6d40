"""Connections that scale or place norms in other ways, against their authors' code or the papers' equations.

The sub-layers are given functions of one position, so that nothing but the connection is tested; those of
Sub-LN are attention and feed-forward with norms inside.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from given_functions import DIM, check_case, close, given_stack, golden_case, load_case, nothing_from
from golden_names import OUTPUT_TOLERANCE, deviation

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.connections.admin import Admin
from deepwire.model.connections.scaled_post_norm import deepnorm_residual_scale
from deepwire.model.context import Context
from deepwire.model.initialization import deepnorm_gain, sub_ln_gain
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import Side

PLAIN = {r"norm(\d)\.(\w+)": r"connection.norms.\1.\2"}
OUTPUT_NORMS = {
    **PLAIN,
    r"norm_out(\d)\.(\w+)": r"connection.output_norms.\1.\2",
    r"final\.(\w+)": r"connection.final_norm.\1",
}
KEEL = {
    r"norm_out(\d)\.(\w+)": r"connection.norms.\1.\2",
    r"norm(\d)\.(\w+)": r"connection.input_norms.\1.\2",
}
DUAL = {**PLAIN, r"dual_norm\.(\w+)": r"connection.dual_norm.\1"}
ADMIN = {**PLAIN, r"omega(\d)": r"connection.scales.\1"}
SINGLE = {"type": "deepnorm", "residual_scale": deepnorm_residual_scale("encoder", 2, 0)}
# Connection, side, and layers of encoder and decoder.
CASES: dict[str, tuple[object, Side, tuple[int, int], Mapping[str, str]]] = {
    "deepnorm_encoder": ("deepnorm", "encoder", (2, 3), PLAIN),
    "deepnorm_decoder": ("deepnorm", "decoder", (3, 2), PLAIN),
    "deepnorm_single": (SINGLE, "encoder", (2, 1), PLAIN),
    "keel": ("keel", "encoder", (2, 1), KEEL),
    "admin_encoder": ("admin", "encoder", (2, 1), ADMIN),
    "b2t_encoder": ("b2t", "encoder", (2, 1), PLAIN),
    "b2t_decoder": ("b2t", "decoder", (1, 2), PLAIN),
    "resi_dual_encoder": ("resi_dual", "encoder", (2, 1), DUAL),
    "resi_dual_decoder": ("resi_dual", "decoder", (1, 1), DUAL),
    "peri_ln": ("peri_ln", "encoder", (2, 1), OUTPUT_NORMS),
    "layer_scale": (
        "layer_scale",
        "encoder",
        (2, 1),
        {**OUTPUT_NORMS, r"scale(\d)": r"connection.scales.\1"},
    ),
}


def stack_of(name: str) -> tuple[Stack, dict[str, str]]:
    """The stack of a case, whose sub-layers are functions, and where golden parameters lie."""
    connection, side, layers, renamed = CASES[name]
    counts = dict(zip(("encoder", "decoder"), layers, strict=True))
    stacks = {each: {"layers": count, "connection": connection} for each, count in counts.items()}
    stack, functions = given_stack(connection, side, counts[side], **stacks)
    return stack, {**functions, **renamed}


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(name: str) -> None:
    """The result of a stack, and the gradients of its input and of every parameter."""
    stack, renamed = stack_of(name)
    check_case(stack, golden_case(name), renamed, nothing_from(CASES[name][1], len(stack.mixers)))


def test_profile_of_admin() -> None:
    """The scales that one pass over a batch sets, and the result of that pass."""
    golden = golden_case("admin_encoder")
    stack, renamed = stack_of("admin_encoder")
    load_case(stack, golden, renamed)
    connection = stack.connection
    assert isinstance(connection, Admin)
    with torch.no_grad():
        for scale in connection.scales:
            scale.fill_(1)
        connection.profiling = True
        (result,), *_ = stack(golden["in.profile"], Context())
    assert close(result, golden["out.profile_result"], OUTPUT_TOLERANCE)
    for scale, expected in zip(connection.scales, golden["out.omega_start"], strict=True):
        assert deviation(scale, expected.expand(DIM)) < OUTPUT_TOLERANCE


def sub_ln_places(side: Side, layers: int) -> dict[str, str]:
    """Where the parameters of Sub-LN lie."""
    norms = ["self_norm", "cross_norm", "ffn_norm"] if side == "decoder" else ["self_norm", "ffn_norm"]
    places = {
        r"layer(\d)\.self\.inner_norm\.(\w+)": r"mixers.\1.inner_norm.\2",
        r"layer(\d)\.ffn\.inner_norm\.(\w+)": r"feed_forwards.\1.inner_norm.\2",
        r"layer(\d)\.ffn\.1\.(\w+)": r"feed_forwards.\1.input.\2",
        r"layer(\d)\.ffn\.2\.(\w+)": r"feed_forwards.\1.output.\2",
        r"layer(\d)\.self\.o\.(\w+)": r"mixers.\1.output.\2",
        r"layer(\d)\.cross\.q\.(\w+)": r"crosses.\1.query.\2",
        r"layer(\d)\.cross\.o\.(\w+)": r"crosses.\1.output.\2",
    }
    for layer in range(layers):
        for number, norm in enumerate(norms):
            name = rf"connection.norms.{layer * len(norms) + number}.\1"
            places[rf"layer{layer}\.{norm}\.(\w+)"] = name
    for kind, module, matrices in (
        ("self", "mixers.{}.query_key_value", "qkv"),
        ("cross", "crosses.{}.key_value", "kv"),
    ):
        for number, matrix in enumerate(matrices):
            rows = f":{number * DIM}:{(number + 1) * DIM}"
            places[rf"layer(\d)\.{kind}\.{matrix}\.(\w+)"] = module.format(r"\1") + r".\2" + rows
    return places


@pytest.mark.parametrize(("side", "layers", "heads"), [("encoder", 2, 4), ("decoder", 1, 2)])
def test_sub_ln(side: Side, layers: int, heads: int) -> None:
    """Norms inside self-attention and feed-forward sub-layers, but not in cross-attention."""
    golden = golden_case(f"subln_{side}")
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
    stack = build_model(config, 8, 8).stack(side)
    places = sub_ln_places(side, layers)
    context = Context()
    if side == "decoder":
        load_case(stack, golden, places)  # the memory is projected with them
        bias = torch.zeros(2, 1, 1, golden["in.memory"].size(1))
        context = Context(memory=stack.project_memory([golden["in.memory"]], Context(padding=bias)))
    check_case(stack, golden, places, context)


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
