"""Any mixer x connection x aggregation x fusion x parameters of languages, drawn from all that there are."""

from __future__ import annotations

from typing import Any

import pytest
from choices import LANGUAGES, SOCKETS, choices, members, model_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from deepwire.model.config import ModelConfig
from deepwire.model.context import Side
from deepwire.testing import check_model


def stacks(side: Side) -> st.SearchStrategy[dict[str, object]]:
    """A stack with any choice at every socket."""
    return st.fixed_dictionaries({socket: st.sampled_from(choices(socket, side)) for socket in SOCKETS})


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(stacks("encoder"), stacks("decoder"), st.sampled_from(LANGUAGES), st.integers(0, 2**16))
def test_any_combination_works_or_is_refused_with_a_reason(encoder, decoder, languages, seed) -> None:
    """Finite gradients for every parameter, padding, causality, steps and selection: see `check_model`."""
    try:
        check_model(model_settings(encoder, decoder, languages), seed)
    except ValidationError as error:
        reason_of(error)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(stacks("encoder"), stacks("decoder"), st.sampled_from(LANGUAGES), st.integers(0, 2**16))
def test_any_combination_works_with_norms_inside_sublayers(encoder, decoder, languages, seed) -> None:
    """The same with `inner_norm`, for which the mixers must have a place."""
    both = ({**stack, "mixer": {"type": "self_attention", "relative": 2}} for stack in (encoder, decoder))
    try:
        check_model({**model_settings(*both, languages), "inner_norm": True}, seed)
    except ValidationError as error:
        reason_of(error)


@pytest.mark.parametrize("socket", SOCKETS)
def test_every_member_works_as_it_comes_on_either_side(socket: str) -> None:
    """No member of a table is refused beside the ordinary choices of its side."""
    plain = {"mixer": "self_attention", "connection": "pre_norm", "aggregation": "last", "fusion": "top"}
    ordinary = {name: {"type": kind} for name, kind in plain.items()}
    for side in ("encoder", "decoder"):
        for name in members(socket):
            if {"type": name} not in choices(socket, side):
                continue
            changed = {**ordinary, socket: {"type": name}}
            if name == "rnmt":  # made of recurrent mixers only
                changed["mixer"] = {"type": "ln_lstm"}
            pair = (changed, ordinary) if side == "encoder" else (ordinary, changed)
            assert refused(model_settings(*pair)) is None, f"{side}.{socket}: {name}"


def refused(wanted: dict[str, Any]) -> str | None:
    """Why the settings are refused, in one line; None when they are not."""
    small = {"d_model": 16, "heads": 4, "feed_forward": 24}
    stacks_of_three = {side: {"layers": 3, **wanted[side]} for side in ("encoder", "decoder")}
    try:
        ModelConfig.model_validate({**small, **wanted, **stacks_of_three})
    except ValidationError as error:
        return reason_of(error)
    return None


def reason_of(error: ValidationError) -> str:
    """The one line of a refusal."""
    reason = error.errors()[0]["msg"]
    assert reason
    assert "\n" not in reason
    return reason
