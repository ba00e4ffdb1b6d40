"""DWA and MUDD: sums over depth, fixed or made by each position."""

from __future__ import annotations

import pytest
import torch
from one_socket import aggregated, config_of

from deepwire.model.aggregations.aggregation import Aggregation
from deepwire.model.build import build_model

CHOICES: list[object] = [
    "dwa",
    {"type": "dwa", "dilation": 2, "period": 2},
    {"type": "dwa", "dilation": 3},
    "mudd",
    {"type": "mudd", "last_expansion": 4},
    {"type": "mudd", "ways": 4},
]


def aggregation_of(aggregation: object, layers: int) -> Aggregation:
    config = config_of(layers, aggregation=aggregation)
    return config.encoder.aggregation.build(config.specs()["encoder"])


@pytest.mark.parametrize("aggregation", CHOICES)
def test_begins_as_the_ordinary_stack(aggregation: object) -> None:
    """Every layer reads the one below until something was learned."""
    vectors = [torch.randn(2, 3, 16) for _ in range(5)]
    reads = aggregated(aggregation_of(aggregation, 4), vectors)
    assert all(torch.equal(read, vector) for read, vector in zip(reads, vectors, strict=True))


@pytest.mark.parametrize(
    ("aggregation", "hidden"),
    [
        ("mudd", [2, 3, 4]),
        ({"type": "mudd", "last_expansion": 4}, [2, 3, 16]),
    ],
)
def test_hidden_widths_of_mudd(aggregation: object, hidden: list[int]) -> None:
    """One unit a vector; more behind the last layer."""
    shapes = {name: tuple(value.shape) for name, value in aggregation_of(aggregation, 3).named_parameters()}
    assert [shapes[f"makers.{layer}.input"] for layer in range(3)] == [(width, 16) for width in hidden]


def test_four_ways_begin_as_the_ordinary_stack() -> None:
    """With the same maps, a model gives what one of pre-norm gives."""
    plain, dense = (
        build_model(config_of(aggregation="last"), 23, 23),
        build_model(config_of(aggregation=CHOICES[-1]), 23, 23),
    )
    state = dict(plain.state_dict())
    for side in ("encoder", "decoder"):
        joint = state.pop(f"{side}.mixers.1.query_key_value.weight")
        state |= {f"{side}.mixers.1.apart.{place}.weight": part for place, part in enumerate(joint.split(16))}
    missing, unexpected = dense.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(".aggregation." in name for name in missing)
    source, target = torch.tensor([[4, 9, 5, 2]]), torch.tensor([[1, 5, 9, 12]])
    assert torch.allclose(dense.decode(source, target)[0], plain.decode(source, target)[0], atol=1e-5)
