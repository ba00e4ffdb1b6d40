"""Every choice of every socket, as it comes and with its options of note, beside ordinary choices."""

from __future__ import annotations

from typing import Any

import pytest
from choices import SOCKETS, Options, choices, model_settings
from pydantic import ValidationError
from test_product import refused

from deepwire.model.config import ModelConfig
from deepwire.model.stack_spec import SIDES, Side
from deepwire.testing import check_model, check_recomputation, small_model

ORDINARY: dict[str, Options] = {
    "mixer": {"type": "self_attention"},
    "connection": {"type": "pre_norm"},
    "aggregation": {"type": "last"},
    "fusion": {"type": "top"},
}
CASES = [(side, socket, option) for side in SIDES for socket in SOCKETS for option in choices(socket, side)]


@pytest.mark.parametrize(("side", "socket", "option"), CASES, ids=str)
def test_it_does_what_all_must_do(side: Side, socket: str, option: Options) -> None:
    """Gradients, padding, causality, steps, prompts, selection, norms of languages and recomputation."""
    stack = {**ORDINARY, socket: option}
    if option["type"] == "rnmt":  # made of recurrent mixers only
        stack["mixer"] = {"type": "ln_lstm"}
    if option["type"] == "collaboration":
        ordinary = {**ORDINARY, "fusion": {"type": "blocks"}}
        stack = ordinary if side == "encoder" else ORDINARY
        pair = ({**ordinary, socket: option}, {**ORDINARY, socket: option})
    else:
        pair = (stack, ORDINARY) if side == "encoder" else (ORDINARY, stack)
    settings = model_settings(*pair, {"norm": True})
    if refused(settings) is not None:
        settings = model_settings(*pair)
    check_model(settings)
    check_recomputation(small_model(settings))


REFUSED: list[tuple[dict[str, Any], str]] = [
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


@pytest.mark.parametrize(("model", "message"), REFUSED)
def test_what_does_not_fit_is_refused(model: dict[str, Any], message: str) -> None:
    """In one line, when the settings are read."""
    small = {"d_model": 16, "heads": 4, "feed_forward": 24}
    stacks = {side: {"layers": 3, **model.get(side, {})} for side in SIDES}
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate({**small, **model, **stacks})
