"""Where a depth-wise LSTM has layer norms: three layouts of one size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.connections.depth_lstm import DepthLSTM, DepthRecurrent
from deepwire.model.context import Context

Layout = dict[str, object]

# Each has n_e + 2 n_d - 1 norms outside the LSTMs, the number that the printed sizes demand.
LAYOUTS: dict[str, Layout] = {
    "decoder": {"final_norm": "decoder"},
    "encoder": {"final_norm": "encoder"},
    "both": {"final_norm": "both", "first_norm": "second_layer"},
}


def settings(layout: Layout, kind: str = "depth_lstm", layers: int = 3) -> dict[str, dict[str, object]]:
    """Both stacks with that layout; what has no effect in an encoder is left out there."""
    encoder = {key: value for key, value in layout.items() if key != "first_norm"}
    return {
        "encoder": {"layers": layers, "connection": {"type": kind, **encoder}},
        "decoder": {"layers": layers, "connection": {"type": kind, **layout}},
    }


def connections(layout: Layout, kind: str = "depth_lstm") -> tuple[DepthRecurrent, DepthRecurrent]:
    small = {"d_model": 16, "heads": 4, "feed_forward": 24, "dropout": 0.0}
    config = ModelConfig.model_validate({**small, **settings(layout, kind)})
    contexts = config.specs()
    encoder, decoder = (
        getattr(config, side).connection.build(contexts[side]) for side in ("encoder", "decoder")
    )
    assert isinstance(encoder, DepthRecurrent)
    assert isinstance(decoder, DepthRecurrent)
    return encoder, decoder


def normalised(x: Tensor) -> bool:
    return torch.allclose(x.mean(-1), torch.zeros(x.shape[:-1]), atol=1e-5) and torch.allclose(
        x.var(-1, unbiased=False), torch.ones(x.shape[:-1]), atol=1e-2
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_the_printed_size(layout: str) -> None:
    """2024, Table 6, 12 layers."""
    config = ModelConfig.model_validate(settings(LAYOUTS[layout], layers=12))
    with torch.device("meta"):
        model = build_model(config, 35_627, 35_627)
    assert f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f}" == "122.23"


@pytest.mark.parametrize("kind", ["depth_lstm", "depth_rnn"])
@pytest.mark.parametrize(
    ("layout", "queries", "outputs"),
    [
        ("decoder", ([1, 2], [1, 2, 3, 4, 5]), (False, True)),
        ("encoder", ([1, 2], [1, 2, 3, 4, 5]), (True, False)),
        ("both", ([1, 2], [2, 3, 4, 5]), (True, True)),
    ],
)
def test_which_vectors_are_normalised(
    kind: str, layout: str, queries: tuple[list[int], list[int]], outputs: tuple[bool, bool]
) -> None:
    """Queries by their place in the stack, two for each layer of the decoder; then what leaves the stack."""
    for connection, expected, output in zip(
        connections(LAYOUTS[layout], kind), queries, outputs, strict=True
    ):
        state = connection.start(5 * torch.randn(2, 3, 16) + 3, Context())
        found = []
        with torch.no_grad():
            for index in range(len(connection.calls)):
                read = connection.read(state, index, Context())
                if normalised(read):
                    found.append(index)
                state = connection.write(state, index, read, 5 * torch.randn_like(read) + 3, Context())
            assert normalised(connection.normalise(5 * state[0] + 3, Context())) == output
        assert found == expected


def test_what_earlier_versions_recorded_is_what_it_was() -> None:
    """Their `auto` has its final norm in the decoder, and its norms keep their names."""
    encoder, decoder = connections({"final_norm": "auto"})
    assert [name for name, _ in encoder.named_parameters() if name.startswith(("norms", "final"))] == [
        f"norms.{index}.{leaf}" for index in (0, 1) for leaf in ("weight", "bias")
    ]
    assert decoder.final_norm is not None
    assert len(decoder.norms) == 5


def test_a_direct_path_brings_attention_to_the_cell_which_leaves_the_unit() -> None:
    """Its parts one by one."""
    encoder, _ = connections({"direct_path": True})
    assert isinstance(encoder, DepthLSTM)
    below, cell, merged = torch.randn(3, 2, 3, 16).unbind()
    output, above = encoder.unit(1, (below, cell), merged, Context())
    both = torch.cat((below, merged), -1)
    input_gate, forget_gate = encoder.gates[0](both, Context())
    expected = cell * forget_gate + encoder.hiddens[1](both, Context()) * input_gate + merged
    torch.testing.assert_close(above, expected)
    assert output is above
