"""Every choice of every socket, as it comes and with its options of note, beside ordinary choices."""

from __future__ import annotations

import pytest
from choices import SOCKETS, Options, choices, model_settings
from test_product import refused

from deepwire.model.stack_spec import SIDES, Side
from deepwire.testing import check_model, check_recomputation, small_model

ORDINARY: dict[str, Options] = {
    "mixer": {"type": "self_attention"},
    "connection": {"type": "pre_norm"},
    "aggregation": {"type": "last"},
    "fusion": {"type": "top"},
}
# Mixers see another order on either side. Of the other sockets, options run the same code in both stacks.
CASES = [
    (side, socket, option)
    for side in SIDES
    for socket in SOCKETS
    for option in choices(socket, side)
    if socket == "mixer" or side == "decoder" or len(option) == 1 or option not in choices(socket, "decoder")
]


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
