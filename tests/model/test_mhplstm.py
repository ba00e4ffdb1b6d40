"""MHPLSTM against its formula written out, in whole models, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.mhplstm import MHPLSTM, MHPLSTMConfig
from deepwire.model.stack_spec import Side
from deepwire.ops.linear_recurrence import sum_of_past
from deepwire.testing import small_model

MHPLSTM_TYPE = {"type": "mhplstm"}
XU_VOCABULARY = 35_627
RELEASED = {"type": "pre_norm", "residual": "normalised", "mixer_norm": False}


def mixer(side: Side, wanted: Mapping[str, object], *, width: int = 16, dim: int = 16) -> MHPLSTM:
    """A mixer in double precision, with parameters far from where they begin."""
    model = ModelConfig.model_validate({"d_model": 16, "heads": 4, "feed_forward": 24, "dropout": 0.0})
    context = replace(model.specs()[side], mixer_width=width, dim=dim)
    built = MHPLSTMConfig.model_validate(wanted).build(context)
    assert isinstance(built, MHPLSTM)
    for parameter in built.parameters():
        nn.init.normal_(parameter, std=0.5)
    return built.double()


def formula(built: MHPLSTM, wanted: MHPLSTMConfig, x: Tensor) -> Tensor:
    """Equations 9 to 21 for one sentence `[T, d]`, position by position and head by head."""
    cells, heads = built.cells, built.heads
    inputs = built.input(x).view(len(x), heads, -1)
    if built.directions == 2:
        inputs = torch.cat((inputs[:, : heads // 2], inputs.flip(0)[:, heads // 2 :]), 1)
    cell = torch.zeros(heads, built.output_dim, dtype=x.dtype) if cells.initial is None else cells.initial
    past, outputs = torch.zeros_like(inputs[0]), []

    def norm(of: Any, values: Tensor) -> Tensor:
        values = values.view(of.weight.shape)
        axes = (0, 1, 2) if wanted.norms == "joint" else (2,)
        mean = values.mean(axes, keepdim=True)
        variance = ((values - mean) ** 2).mean(axes, keepdim=True)
        return (values - mean) / (variance + 1e-6).sqrt() * of.weight + of.bias

    def mapped(of: nn.Module, values: Tensor) -> Tensor:
        return torch.stack(
            [values[k] @ of.weight[k] + (0 if of.bias is None else of.bias[k, 0]) for k in range(len(values))]
        )

    act = {"relu": torch.relu, "gelu": functional.gelu, "glu": functional.glu}[wanted.activation]
    for current in inputs:
        seen = torch.cat((current, norm(cells.past_norm, past)[:, 0]), -1)
        parts = mapped(cells.mix, seen)
        if wanted.hidden == wanted.gates == "one_layer":
            normal = norm(cells.gate_norm, parts)
            input_gate, keep, hidden = normal[:, 0].sigmoid(), normal[:, 1].sigmoid(), act(normal[:, 2])
        else:
            inner = cells.hidden_norm.weight.size(-1)
            of_gates = parts[:, :-inner]
            if wanted.gates == "two_layer":
                active = act(norm(cells.inner_gate_norm, of_gates))
                both = [mapped(output, active[:, k]) for k, output in enumerate(cells.gate_outputs)]
                of_gates = torch.cat(both, -1)
            input_gate, keep = norm(cells.gate_norm, of_gates).sigmoid().unbind(1)
            hidden = act(norm(cells.hidden_norm, parts[:, -inner:])[:, 0])
            if wanted.hidden == "two_layer":
                hidden = mapped(cells.hidden_output, hidden)
        cell = keep * cell + input_gate * hidden
        gate = norm(cells.output_norm, mapped(cells.output_gate, torch.cat((current, cell), -1)))[:, 0]
        outputs.append(cell * gate.sigmoid())
        past = past + current
    out = torch.stack(outputs)
    if built.directions == 2:
        out = torch.cat((out[:, : heads // 2], out[:, heads // 2 :].flip(0)), 1)
    return built.output(out.flatten(1))


one_layer = st.fixed_dictionaries(
    {"hidden": st.just("one_layer"), "activation": st.sampled_from(["relu", "gelu"])}
)
two_layer = st.fixed_dictionaries(
    {"activation": st.sampled_from(["relu", "gelu", "glu"]), "hidden_size": st.sampled_from([None, 12, 36])}
)
choices = st.tuples(
    one_layer | two_layer,
    st.fixed_dictionaries(
        {
            "gates": st.sampled_from(["one_layer", "two_layer"]),
            "heads": st.sampled_from([None, 1, 2, 3]),
            "norms": st.sampled_from(["per_head", "joint"]),
            "initial_cell": st.sampled_from(["learned", "zero"]),
            "bias": st.booleans(),
        }
    ),
).map(lambda both: {**both[0], **both[1]})


@given(
    wanted=choices,
    side=st.sampled_from(["encoder", "decoder"]),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    widths=st.sampled_from([(16, 16), (32, 16), (16, 24), (10, 14)]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_equals_the_formula(
    wanted: dict[str, object], side: Side, lengths: list[int], widths: tuple[int, int], seed: int
) -> None:
    """All options, both directions, any widths; each sentence of a batch as if it were alone."""
    if wanted.get("activation") == "glu" and wanted["heads"] is None:
        wanted = {**wanted, "hidden_size": 24}
    torch.manual_seed(seed)
    built = mixer(side, wanted, width=widths[0], dim=widths[1])
    x = torch.randn(len(lengths), max(lengths), widths[0], dtype=torch.float64)
    padding = torch.zeros(len(lengths), 1, 1, max(lengths), dtype=torch.float64)
    for row, length in enumerate(lengths):
        padding[row, ..., length:] = float("-inf")
    found = built(x, Context(padding=padding if side == "encoder" else None))
    for row, length in enumerate(lengths):
        expected = formula(built, MHPLSTMConfig.model_validate(wanted), x[row, :length])
        torch.testing.assert_close(found[row, :length], expected)
    if side == "decoder":
        state = built.init_state(len(lengths), x)
        for position in range(max(lengths)):
            step, state = built.step(
                x[:, position : position + 1], state, Context(index=CacheIndex(len(x), position=position))
            )
            torch.testing.assert_close(step[:, 0], found[:, position])


def test_parameters_of_one_block() -> None:
    """d 512, 8 heads, hidden size 2048, as released: 1,122,816, of which 512 are the first cell."""

    def count(wanted: Mapping[str, object]) -> int:
        with torch.device("meta"):
            built = MHPLSTMConfig.model_validate(wanted).build(ModelConfig().specs()["decoder"])
        return sum(parameter.numel() for parameter in built.parameters())

    assert count({}) == 1_122_816
    assert count({"norms": "joint"}) == 1_122_816
    assert count({"initial_cell": "zero"}) == 1_122_816 - 512


@pytest.mark.parametrize(
    ("feed_forward", "gates", "expected"),
    [(True, "one_layer", "62.81"), (False, "one_layer", "50.21"), (True, "two_layer", "66.79")],
)
def test_parameters_of_whole_models(feed_forward: bool, gates: str, expected: str) -> None:
    """Six layers each, with the decoder's feed-forward sub-layers and without them; with two-layer gates."""
    decoder = {
        "mixer": {**MHPLSTM_TYPE, "gates": gates},
        "connection": RELEASED,
        "feed_forward": feed_forward,
    }
    config = ModelConfig.model_validate({"encoder": {"connection": {"type": "pre_norm"}}, "decoder": decoder})
    with torch.device("meta"):
        model = build_model(config, XU_VOCABULARY, XU_VOCABULARY)
    assert f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f}" == expected


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_the_functions_in_c_do_the_same(monkeypatch: pytest.MonkeyPatch, side: Side, narrow: bool) -> None:
    """Output and gradients, with two threads and dropout; torch rounds more often to bfloat16."""
    built, x = mixer(side, {}, width=32).float(), torch.randn(2, 5, 32, requires_grad=True)
    built.cells.activation_dropout.probability = built.cells.hidden_dropout.probability = 0.1
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
            y = built(x, Context()).float()
        found.append((y, *torch.autograd.grad((y * y.detach().cos()).sum(), [x, *built.parameters()])))
        monkeypatch.setattr("deepwire.model.mixers.mhplstm.head_cells", lambda *_: None)
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= (5e-2 if narrow else 5e-6) * other.norm()


def test_a_long_memory_is_as_long_in_bfloat16() -> None:
    """A gate of 0.9975, for which bfloat16 has no number, keeps 0.53 of a cell over 256 positions."""
    cells = mixer("decoder", MHPLSTM_TYPE).to(torch.bfloat16).cells
    with torch.no_grad():
        cells.gate_norm.weight[:, 1] = 0
        cells.gate_norm.bias[:, 1] = 6
    by_head = torch.randn(4, 256, 1, 4, dtype=torch.bfloat16)
    keep, _ = cells.gates(by_head, sum_of_past(by_head.transpose(0, 1)).transpose(0, 1), Context())
    kept = keep.double().prod(1)
    expected = torch.full_like(kept, torch.tensor(6.0).double().sigmoid().item() ** 256)
    torch.testing.assert_close(kept, expected, rtol=1e-3, atol=0)


def test_begins_within_the_bound_of_its_inputs() -> None:
    """Maps of heads begin like linear maps, uniform in +-1/sqrt(inputs); cells and biases at zero."""
    built = small_model({"decoder": {"mixer": {**MHPLSTM_TYPE, "bias": True}}})
    fresh = build_model(built.config, 23, 23).decoder.mixers[0].cells
    for linear in (fresh.mix, fresh.hidden_output, fresh.output_gate):
        bound = linear.weight.size(1) ** -0.5
        assert 0.8 * bound < linear.weight.abs().max() <= bound
        assert not linear.bias.any()
    assert not fresh.initial.any()
