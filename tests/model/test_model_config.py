"""What a model section refuses, and what it says then."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic import ValidationError

from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

GROUPS = {"type": "groups"}
LSTM = {"type": "depth_lstm"}
DLCL = {"type": "dlcl"}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"heads": 7}, "heads: 7 heads do not divide d_model 512"),
        ({"d_model": 21, "heads": 7}, "d_model must be even, not 21"),
        ({"feed_forward": 33, "activation": "glu"}, "feed_forward must be even with GLU, not 33"),
        ({"decoder": {"fusion": {**GROUPS, "size": 7}}}, "groups of 7 layers need at least 7 layers, not 6"),
        ({"encoder": {"fusion": {**GROUPS, "combine": "mixture"}}}, "mixture is for the decoder"),
        ({"decoder": {"connection": {**LSTM, "merge": "concat", "gate_scope": "model"}}}, "merge: concat"),
        (
            {"decoder": {"connection": {**LSTM, "share": "none", "gate_scope": "model"}}},
            "share: gates or all",
        ),
        ({"encoder": {"connection": {**LSTM, "hidden_size": 25}}}, "even with GLU, not 25"),
        ({"feed_forward": 25, "decoder": {"connection": "depth_rnn"}}, "even with GLU, not 25"),
        (
            {
                "encoder": {"connection": {**LSTM, "gate_scope": "model", "forget_bias": 2}},
                "decoder": {"connection": {**LSTM, "gate_scope": "model"}},
            },
            "gate_scope: model needs the same forget_bias",
        ),
        ({"encoder": {"aggregation": {**DLCL, "weights": 5}}}, "5 weights do not divide the width 512"),
        ({"encoder": {"aggregation": {**DLCL, "weights": 0}}}, "at least 1, not 0"),
        ({"encoder": {"connection": "depth_gru"}}, "depth_lstm"),
        ({"encoder": {"mixer": "recurrent"}}, "self_attention"),
        ({"encoder": {"aggregation": "sum"}}, "dlcl"),
        ({"encoder": {"fusion": "attention"}}, "groups"),
        ({"positions": "alibi"}, "sinusoidal"),
        ({"encoder": {"depth": 6}}, "depth"),
        ({"encoder": {"layers": 0}}, "greater than or equal to 1"),
        ({"encoder": {"layers": 10**8}}, "less than or equal to 10000"),
        ({"dropout": 1.0}, "from 0 to below 1"),
        (
            {
                "languages": {"norm": True},
                **{side: {"connection": "rezero"} for side in ("encoder", "decoder")},
            },
            "languages.norm: neither encoder nor decoder has a norm",
        ),
    ],
)
def test_a_wrong_section_is_refused(section: Mapping[str, object], message: str) -> None:
    """The message names what is wrong, before anything is built."""
    with pytest.raises(ValidationError, match=message.replace("(", r"\(")):
        ModelConfig.model_validate(section)


@pytest.mark.parametrize("tie", ["all", "inputs"])
def test_one_matrix_needs_one_vocabulary(tie: str) -> None:
    """Two sizes cannot share an embedding; the hint says what to set."""
    with pytest.raises(UsageError, match="not 40 and 50 entries") as raised:
        build_model(ModelConfig.model_validate({"embeddings": {"tie": tie}}), 40, 50)
    assert "joint=true" in (raised.value.hint or "")


def test_a_choice_may_be_its_name_alone() -> None:
    """`connection: depth_lstm` is `connection: {type: depth_lstm}`."""
    short = ModelConfig.model_validate({"encoder": {"connection": "depth_lstm", "aggregation": "dlcl"}})
    long = ModelConfig.model_validate({"encoder": {"connection": LSTM, "aggregation": DLCL}})
    assert short == long


def test_one_dropout_sets_every_place() -> None:
    """A number in place of the section."""
    assert set(ModelConfig.model_validate({"dropout": 0.3}).dropout.model_dump().values()) == {0.3}
