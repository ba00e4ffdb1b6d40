"""Parameter counts of published tables, to the last printed digit.

Depth-wise LSTM (Xu et al. 2024): embeddings tied, V = 35,627, no bias in attention nor in front of a norm.
Printed rows that no convention reproduces are left out: two depth-wise LSTMs (100.18), hidden size 1586
(62.37; a misprint of 1536), one-layer hidden in the Big model (288.41), Big 12+12 (452.04; 0.0007M off at
this V), and the rows of DSI (149.54) and of ODE (119.17, 288.46).
DLCL (Wang et al. 2019) and GTrans (Yang et al. 2022) follow fairseq.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

XU_VOCABULARY = 35_627
# The paper says neither size; every value in [33,910, 34,050] gives all five rows.
WANG_VOCABULARY = 34_040
# [9,695, 9,889] gives the row.
YANG_VOCABULARY = 9_800
FAIRSEQ: dict[str, object] = {"bias": {"attention": True, "feed_forward": "both", "output": False}}


def count(
    model: Mapping[str, object], encoder: Mapping[str, object], decoder: Mapping[str, object], size: int
) -> int:
    """Parameters of a model, without memory for them."""
    config = ModelConfig.model_validate({**model, "encoder": encoder, "decoder": decoder})
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build_model(config, size, size).parameters())


def same(
    layers: int, connection: object, decoder: object = None
) -> tuple[dict[str, object], dict[str, object]]:
    """Both stacks with one depth and connection, unless the decoder's is given."""
    return (
        {"layers": layers, "connection": connection},
        {"layers": layers, "connection": decoder or connection},
    )


def printed(parameters: int) -> str:
    """Millions with two digits, as printed in the tables."""
    return f"{parameters / 1e6:.2f}"


@pytest.mark.parametrize(
    ("layers", "expected"), [(3, "40.33"), (6, "62.37"), (12, "106.47"), (18, "150.57"), (24, "194.66")]
)
@pytest.mark.parametrize("connection", ["pre_norm", {"type": "post_norm", "embedding_norm": True}])
def test_transformer_base(layers: int, expected: str, connection: object) -> None:
    """Table 6; Neutron's two orders of norm and residual have the same size."""
    assert printed(count({}, *same(layers, connection), XU_VOCABULARY)) == expected


LSTM: dict[str, object] = {"type": "depth_lstm", "final_norm": "decoder"}
ONE_GATE_SET: dict[str, object] = {**LSTM, "gate_scope": "model"}


@pytest.mark.parametrize(
    ("layers", "connection", "expected"),
    [
        # All six-layer rows but concat and none count one gate set for both stacks together.
        (6, ONE_GATE_SET, "70.25"),
        (6, {**ONE_GATE_SET, "hidden": "one_layer"}, "45.05"),
        (6, {**ONE_GATE_SET, "hidden_size": 1536}, "62.37"),
        (6, {**ONE_GATE_SET, "share": "all"}, "44.00"),
        (6, {**LSTM, "share": "none"}, "87.59"),
        (6, {**LSTM, "merge": "concat"}, "78.90"),
        (6, {"type": "depth_rnn", "final_norm": "decoder"}, "68.67"),
        # The other depths count one gate set for each stack, as the text says.
        (3, LSTM, "46.63"),
        (12, LSTM, "122.23"),
        (18, LSTM, "172.63"),
        (24, LSTM, "223.02"),
    ],
)
def test_depth_lstm_base(layers: int, connection: object, expected: str) -> None:
    """Tables 2 to 6."""
    assert printed(count({}, *same(layers, connection), XU_VOCABULARY)) == expected


def test_depth_lstm_big() -> None:
    """Table 6, Big with 12 and 6 layers and relative positions within 16."""
    stack = {"connection": LSTM, "mixer": {"type": "self_attention", "relative": 16}}
    model = {"d_model": 1024, "heads": 16, "feed_forward": 4096}
    assert printed(count(model, {**stack, "layers": 12}, {**stack, "layers": 6}, XU_VOCABULARY)) == "338.75"


def test_dlcl_of_the_depth_lstm_paper() -> None:
    """Table 6, a DLCL encoder of 30 layers; the row leaves out what DLCL adds, weights and norms."""
    assert printed(count({}, {"layers": 30}, {"layers": 6}, XU_VOCABULARY)) == "137.97"


@pytest.mark.parametrize(
    ("layers", "connection", "deep", "expected", "exact"),
    [
        (6, "post_norm", False, 62, 61_566_976),
        (6, "pre_norm", False, 62, 61_569_024),
        (20, "pre_norm", False, 106, 105_702_400),
        (25, "post_norm", True, 121, 121_494_741),
        (30, "pre_norm", True, 137, 137_264_114),
    ],
)
def test_dlcl_base(layers: int, connection: str, deep: bool, expected: int, exact: int) -> None:
    """Wang et al. 2019, Table 1; as in their code, DLCL does not normalise the embedding."""
    aggregation = {"type": "dlcl", "embedding_norm": "none"} if deep else "last"
    stack = {"connection": connection, "aggregation": aggregation}
    found = count(FAIRSEQ, {**stack, "layers": layers}, {**stack, "layers": 6}, WANG_VOCABULARY)
    assert found == exact
    assert round(found / 1e6) == expected


def test_transformer_big() -> None:
    """Wang et al. 2019, Table 1, Transformer-Big."""
    model = {**FAIRSEQ, "d_model": 1024, "heads": 16, "feed_forward": 4096}
    found = count(model, *same(6, "post_norm"), WANG_VOCABULARY)
    assert found == 211_214_336
    assert round(found / 1e6) == 211


def test_gtrans() -> None:
    """Yang et al. 2022, Table 7: 68.1M, with groups as without them."""
    model = {**FAIRSEQ, "feed_forward": 1024}
    plain = {"layers": 12, "connection": "post_norm"}
    without = count(model, plain, plain, YANG_VOCABULARY)
    encoder = {**plain, "fusion": {"type": "groups", "size": 3}}
    released = {**plain, "fusion": {"type": "groups", "size": 2, "representation": "last"}}
    assert f"{without / 1e6:.1f}" == "68.1"
    # 4 gates and a norm in the encoder, 6 weights in the decoder; Eq. 4 has a gate for each layer besides.
    assert count(model, encoder, released, YANG_VOCABULARY) == without + 4 + 2 * 512 + 6
    paper = {**plain, "fusion": {"type": "groups", "size": 2}}
    found = count(model, encoder, paper, YANG_VOCABULARY)
    assert found == without + 4 + 2 * 512 + 6 + 12
    assert f"{found / 1e6:.1f}" == "68.1"
