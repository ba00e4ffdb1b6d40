"""DWA and MUDD: sums over depth, fixed or made by each position."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from deepwire.model.aggregations.aggregation import Aggregation, History
from deepwire.model.aggregations.mudd import MUDD
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.testing import check_aggregation, check_model

SMALL: dict[str, object] = {"d_model": 16, "heads": 4, "feed_forward": 24, "dropout": 0.0}
CHOICES: list[object] = [
    "dwa",
    {"type": "dwa", "dilation": 2, "period": 2},
    {"type": "dwa", "dilation": 3},
    "mudd",
    {"type": "mudd", "last_expansion": 4, "round_hidden": True},
    {"type": "mudd", "ways": 4},
]


def config_of(aggregation: object, layers: int = 2) -> ModelConfig:
    stack = {"layers": layers, "aggregation": aggregation}
    return ModelConfig.model_validate({**SMALL, "encoder": stack, "decoder": stack})


def aggregation_of(aggregation: object, layers: int) -> Aggregation:
    config = config_of(aggregation, layers)
    return config.encoder.aggregation.build(config.specs()["encoder"])


def run(aggregation: Aggregation, vectors: list[Tensor]) -> tuple[History, list[Tensor]]:
    """The history at the end, and what each layer reads when the layers give these vectors."""
    history, first = aggregation.start(vectors[0], Context())
    reads = [first]
    for layer, output in enumerate(vectors[1:]):
        history, read = aggregation.close(history, output, layer, Context())
        reads.append(read)
    return history, reads


@pytest.mark.parametrize("aggregation", CHOICES)
def test_properties(aggregation: object) -> None:
    """Gradients, padding, causality, steps and state selection, around norms of either kind."""
    check_aggregation(aggregation)  # type: ignore[arg-type]
    stack = {"connection": "post_norm", "aggregation": aggregation}
    check_model({"encoder": stack, "decoder": stack})


@pytest.mark.parametrize("aggregation", CHOICES)
def test_begins_as_the_ordinary_stack(aggregation: object) -> None:
    """Every layer reads the one below until something was learned."""
    vectors = [torch.randn(2, 3, 16) for _ in range(5)]
    _, reads = run(aggregation_of(aggregation, 4), vectors)
    assert all(torch.equal(read, vector) for read, vector in zip(reads, vectors, strict=True))


def test_dwa_written_out() -> None:
    """With dilation 2 and period 2, layers 2 and 4 are followed by sums over every second output."""
    aggregation = aggregation_of({"type": "dwa", "dilation": 2, "period": 2}, 5)
    with torch.no_grad():
        for row in aggregation.parameters():
            row.copy_(torch.arange(1.0, len(row) + 1))
    y = [torch.randn(1, 2, 16) for _ in range(6)]
    history, reads = run(aggregation, y)
    expected = [y[0], y[1], y[0] + 2 * y[2], y[3], y[0] + 2 * y[2] + 3 * y[4], y[5]]
    assert all(torch.allclose(read, wanted) for read, wanted in zip(reads, expected, strict=True))
    # The history is the vectors themselves, and only those that some sum reads.
    assert [id(stored) for stored in history] == [id(y[0]), id(y[2]), id(y[4])]


def test_mudd_written_out() -> None:
    """w = W_2 GELU(W_1 RMS(y_2)) + c after layer 2, by position."""
    aggregation = aggregation_of("mudd", 2)
    values = {name: torch.randn_like(value) for name, value in aggregation.named_parameters()}
    aggregation.load_state_dict(values)
    y = [torch.randn(2, 3, 16) for _ in range(3)]
    _, reads = run(aggregation, y)
    normalised = y[2] / (y[2].square().mean(-1, keepdim=True) + 1e-6).sqrt()
    hidden = torch.nn.functional.gelu(normalised @ values["makers.1.input"].T)
    weights = hidden @ values["makers.1.output"].T + values["makers.1.static"][0]
    expected = torch.stack(y, -2).mul(weights.unsqueeze(-1)).sum(-2)
    assert torch.allclose(reads[2], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("aggregation", "hidden"),
    [
        ("mudd", [2, 3, 4]),
        ({"type": "mudd", "last_expansion": 4}, [2, 3, 16]),
        ({"type": "mudd", "last_expansion": 16, "round_hidden": True}, [64, 64, 128]),
    ],
)
def test_hidden_widths_of_mudd(aggregation: object, hidden: list[int]) -> None:
    """One unit a vector; behind the last layer, and with the released code's rounding, more."""
    shapes = {name: tuple(value.shape) for name, value in aggregation_of(aggregation, 3).named_parameters()}
    assert [shapes[f"makers.{layer}.input"] for layer in range(3)] == [(width, 16) for width in hidden]


def test_four_ways_written_out() -> None:
    """Sums of their own for queries, keys and values, the last two normalised; elsewhere there is one."""
    aggregation = aggregation_of({"type": "mudd", "ways": 4}, 2)
    torch.manual_seed(0)
    values = {name: torch.randn_like(value) for name, value in aggregation.named_parameters()}
    aggregation.load_state_dict(values)
    y = [torch.randn(2, 3, 16) for _ in range(3)]
    history, _ = aggregation.start(y[0], Context())
    history, read = aggregation.close(history, y[1], 0, Context())
    assert isinstance(aggregation, MUDD)
    read_as_query, read_as_key, read_as_value = aggregation.inputs(history, 0, Context())
    normalised = y[1] / (y[1].square().mean(-1, keepdim=True) + 1e-6).sqrt()
    hidden = torch.nn.functional.gelu(normalised @ values["makers.0.input"].T)
    weights = (hidden @ values["makers.0.output"].T).unflatten(-1, (4, 2)) + values["makers.0.static"]
    query, key, value, stream = torch.einsum("btwj,btjd->wbtd", weights, torch.stack(y[:2], -2))
    assert torch.allclose(read, stream, atol=1e-5)
    assert torch.allclose(read_as_query, query, atol=1e-5)
    for number, (found, wanted) in enumerate(((read_as_key, key), (read_as_value, value))):
        gain, bias = (values[f"norms.0.{number}.{leaf}"] for leaf in ("weight", "bias"))
        expected = torch.nn.functional.layer_norm(wanted, (16,), gain, bias, 1e-6)
        assert torch.allclose(found, expected, atol=1e-4)
    history, _ = aggregation.close(history, y[2], 1, Context())
    assert len(history) == 3
    assert aggregation.inputs(history, 1, Context()) == ()


def test_four_ways_begin_as_the_ordinary_stack() -> None:
    """With the same maps, a model gives what one of pre-norm gives."""
    plain, dense = build_model(config_of("last"), 23, 23), build_model(config_of(CHOICES[-1]), 23, 23)
    state = dict(plain.state_dict())
    for side in ("encoder", "decoder"):
        joint = state.pop(f"{side}.mixers.1.query_key_value.weight")
        state |= {f"{side}.mixers.1.apart.{place}.weight": part for place, part in enumerate(joint.split(16))}
    missing, unexpected = dense.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(".aggregation." in name for name in missing)
    source, target = torch.tensor([[4, 9, 5, 2]]), torch.tensor([[1, 5, 9, 12]])
    assert torch.allclose(dense.decode(source, target)[0], plain.decode(source, target)[0], atol=1e-5)


@pytest.mark.parametrize("aggregation", ["dwa", "mudd"])
def test_the_stream_keeps_its_number_format(aggregation: str) -> None:
    """Weights in float32 do not widen vectors of 16 bits."""
    vectors = [torch.randn(1, 2, 16, dtype=torch.bfloat16) for _ in range(4)]
    with torch.autocast("cpu", torch.bfloat16):
        history, reads = run(aggregation_of(aggregation, 3), vectors)
    assert {tensor.dtype for tensor in (*history, *reads)} == {torch.bfloat16}


def test_weights_for_analyses() -> None:
    """What each layer reads, with nothing where nothing is connected."""
    model = build_model(config_of({"type": "dwa", "dilation": 2, "period": 2}, 4), 23, 23)
    (weights,) = model.encoder.depth_weights()
    nan = float("nan")
    expected = torch.tensor(
        [
            [1, nan, nan, nan, nan],
            [nan, 1, nan, nan, nan],
            [0, nan, 1, nan, nan],
            [nan, nan, nan, 1, nan],
            [0, nan, 0, nan, 1],
        ]
    )
    assert torch.equal(weights.values.nan_to_num(-1), expected.nan_to_num(-1))
    (static,) = build_model(config_of("mudd"), 23, 23).encoder.depth_weights()
    assert torch.equal(static.values.nan_to_num(-1), torch.tensor([[0.0, 1, -1], [0, 0, 1]]))


@pytest.mark.parametrize(
    ("stack", "message"),
    [
        ({"mixer": "gru"}, "encoder.mixer does not take them as it is set; self_attention can"),
        ({"mixer": "lime"}, "encoder.mixer does not take them"),
        ({"connection": "depth_lstm"}, "encoder.connection does not take them as it is set; pre_norm,"),
        ({"connection": {"type": "pre_norm", "residual": "normalised"}}, "encoder.connection does not take"),
    ],
)
def test_ways_that_nobody_takes_are_refused(stack: dict[str, object], message: str) -> None:
    """By the mixer or by the connection."""
    encoder = {"layers": 2, "aggregation": {"type": "mudd", "ways": 4}, **stack}
    with pytest.raises(ValidationError) as caught:
        ModelConfig.model_validate({**SMALL, "encoder": encoder})
    (error,) = caught.value.errors()
    assert message in error["msg"]


@pytest.mark.parametrize(
    ("aggregation", "message"),
    [
        (
            {"type": "dwa", "period": 3},
            "encoder.aggregation: dwa with a period of 3 never comes to a sum in 2",
        ),
        ({"type": "dwa", "dilation": 3}, "encoder.aggregation: dwa with a dilation of 3 finds nothing below"),
        ({"type": "dwa", "period": 0}, "greater than or equal to 1"),
        ({"type": "mudd", "last_expansion": 0}, "greater than or equal to 1"),
    ],
)
def test_what_makes_no_sense_is_refused(aggregation: object, message: str) -> None:
    """In one line, when the settings are read."""
    with pytest.raises(ValidationError) as caught:
        config_of(aggregation)
    error = caught.value.errors()[0]
    assert message in error["msg"]
    assert "\n" not in error["msg"]
