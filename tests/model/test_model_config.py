"""What a model section refuses, and what it says then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.stack_spec import SIDES

GROUPS = {"type": "groups"}
LSTM = {"type": "depth_lstm"}
DLCL = {"type": "dlcl"}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"heads": 7}, "heads: 7 heads do not divide d_model 512"),
        ({"d_model": 21, "heads": 7}, "d_model must be even, not 21"),
        ({"feed_forward": 33, "activation": "glu"}, "feed_forward must be even with GLU, not 33"),
        ({"encoder": {"fusion": {**GROUPS, "combine": "mixture"}}}, "mixture is for the decoder"),
        ({"decoder": {"connection": {**LSTM, "merge": "concat", "gate_scope": "model"}}}, "merge: concat"),
        ({"encoder": {"connection": {**LSTM, "hidden_size": 25}}}, "even with GLU, not 25"),
        ({"feed_forward": 25, "decoder": {"connection": "depth_rnn"}}, "even with GLU, not 25"),
        (
            {
                "encoder": {"connection": {**LSTM, "gate_scope": "model", "forget_bias": 2}},
                "decoder": {"connection": {**LSTM, "gate_scope": "model"}},
            },
            "gate_scope: model needs the same forget_bias",
        ),
        ({"encoder": {"aggregation": {**DLCL, "weights": 0}}}, "at least 1, not 0"),
        ({"encoder": {"connection": "depth_gru"}}, "depth_lstm"),
        ({"encoder": {"mixer": "recurrent"}}, "self_attention"),
        ({"encoder": {"aggregation": "sum"}}, "dlcl"),
        ({"encoder": {"fusion": "attention"}}, "groups"),
        ({"positions": "alibi"}, "sinusoidal"),
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


OF_SOCKETS: list[tuple[dict[str, Any], str]] = [
    ({"encoder": {"aggregation": {"type": "hierarchical", "block": 9}}}, "a block of 9 layers does not fit"),
    ({"encoder": {"aggregation": {"type": "dlcl", "weights": 3}}}, "3 weights do not divide the width 16"),
    (
        {"encoder": {"aggregation": {"type": "mudd", "ways": 4}, "mixer": "gla"}},
        "mixer does not take",
    ),
    ({"encoder": {"connection": "collaboration"}}, "and decoder.connection pre_norm reads width"),
    ({"decoder": {"connection": "rnmt", "mixer": "self_attention"}}, "reads vectors of width 16 only"),
    ({"encoder": {"fusion": {"type": "groups", "size": 9}}}, "groups of 9 layers need at least 9 layers"),
    ({"encoder": {"layers": 2, "fusion": "blocks"}, "decoder": {"layers": 3}}, "do not fall into 3 equal"),
    ({"decoder": {"fusion": "transparent"}}, "transparent does not work in the decoder"),
    ({"decoder": {"mixer": {"type": "luna", "pack_heads": 3}}}, "3 pack_heads do not divide the width 16"),
    ({"encoder": {"mixer": "average_attention"}}, "average_attention does not work in the encoder"),
    ({"encoder": {"layers": 1, "mixer": "lime"}}, "there is only one"),
    ({"encoder": {"mixer": ["lime", "gla"]}}, "works in all layers of a stack or in none"),
    ({"encoder": {"mixer": {"type": "min_gru", "expansion": 2.0}}}, "needs output_matrix: true"),
    ({"encoder": {"mixer": {"type": "mhplstm", "heads": 16}}}, "too small for 16 heads"),
    ({"positions": "rotary", "decoder": {"mixer": "gla"}}, "rotary positions turn queries and keys"),
    ({"qk_norm": True, "decoder": {"mixer": "luna"}}, "has keys of another kind"),
    ({"inner_norm": True, "decoder": {"mixer": "gla"}}, "needs mixers with a place for it"),
    ({"key_value_heads": 3}, "3 heads of keys and values do not divide"),
    (
        {"encoder": {"connection": {"type": "depth_lstm", "share": "none", "gate_scope": "model"}}},
        "share: gates",
    ),
    ({"decoder": {"connection": {"type": "frac", "fractions": 3}}}, "do not divide the width"),
    ({"decoder": {"recurrence": {}}}, "set encoder.recurrence"),
    ({"encoder": {"recurrence": {"prelude": 2, "coda": 2}}}, "leave none of 3"),
    (
        {"decoder": {"inner_feed_forward": True, "mixer": "merged_attention"}},
        "needs a cross-attention",
    ),
]


@pytest.mark.parametrize(("model", "message"), OF_SOCKETS)
def test_what_does_not_fit_a_stack_is_refused(model: dict[str, Any], message: str) -> None:
    small = {"d_model": 16, "heads": 4, "feed_forward": 24}
    stacks = {side: {"layers": 3, **model.get(side, {})} for side in SIDES}
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate({**small, **model, **stacks})


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
