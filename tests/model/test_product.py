"""Any mixer x connection x aggregation x fusion x parameters of languages, drawn from all that there are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from choices import (
    LANGUAGES,
    PARTS,
    SOCKETS,
    beside_the_ordinary,
    choices,
    members,
    model_settings,
    of_both_sides,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from deepwire.config.choice import TRUSTED
from deepwire.errors import UsageError
from deepwire.model.config import ModelConfig
from deepwire.model.stack_spec import SIDES, Side
from deepwire.ops.packed_linear import pack_linears
from deepwire.runfile import RunFile
from deepwire.testing import TOLERANCE, batch, check_model, small_model
from deepwire.training.extras import depth_weights


def stacks(side: Side) -> st.SearchStrategy[dict[str, object]]:
    """A stack with any choice at every socket."""
    return st.fixed_dictionaries({socket: st.sampled_from(choices(socket, side)) for socket in SOCKETS})


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(stacks("encoder"), stacks("decoder"), st.sampled_from(LANGUAGES), st.integers(0, 2**16))
def test_any_combination_works_or_is_refused_with_a_reason(encoder, decoder, languages, seed) -> None:
    """Finite gradients for every parameter, padding, causality, steps and selection: see `check_model`."""
    try:
        check_model(model_settings(encoder, decoder, languages), seed)
    except UsageError as error:
        one_line(error.message)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    stacks("encoder"),
    stacks("decoder"),
    st.sampled_from(PARTS),
    st.sampled_from(LANGUAGES),
    st.integers(0, 2**16),
)
def test_any_combination_works_with_other_parts(encoder, decoder, parts, languages, seed) -> None:
    """The same with other norms, feed-forward networks and attentions, for which mixers must have a place."""
    mixers = [{"type": "self_attention"}, {"type": "self_attention", "relative": 2}, {"type": "lime"}]
    mixer = mixers[0] if "positions" in parts else mixers[seed % 3]
    both = ({**stack, "mixer": mixer} for stack in (encoder, decoder))
    try:
        check_model({**model_settings(*both, languages), **parts}, seed)
    except UsageError as error:
        one_line(error.message)


@pytest.mark.parametrize("socket", SOCKETS)
def test_every_member_decodes_with_weights_laid_out_for_decoding(socket: str) -> None:
    """Linear maps are replaced where a model is loaded to translate; a step gives the same."""
    for side in ("encoder", "decoder"):
        for name in members(socket):
            wanted = beside_the_ordinary(socket, name, side)
            if wanted is None:
                continue
            model = small_model(wanted)
            source, target, _ = batch()
            with torch.inference_mode():
                before, _ = model.step(target[:, 0], model.start(source))
                pack_linears(model, "none")
                after, _ = model.step(target[:, 0], model.start(source))
            assert (after - before).abs().max() < TOLERANCE, f"{side}.{socket}: {name}"


@pytest.mark.parametrize("socket", SOCKETS)
def test_every_member_can_be_recorded(socket: str) -> None:
    """What training takes down, and what a run file says of that."""
    data = {"source": "de", "target": "en", "train": "train"}
    for name, wanted in of_both_sides(socket):
        model = small_model(wanted)
        recorded = depth_weights(model)
        asked = {"data": data, "model": model.config, "training": {"record": {"depth_weights": 1}}}
        idle = dict(RunFile.model_validate(asked, context=TRUSTED).unused_settings())
        assert ("training.record.depth_weights" in idle) is not bool(recorded), name
        stacks = model.stacks()
        of_model = [(side, each) for side in SIDES for each in stacks[side].depth_weights()]
        assert [f"{side}.{each.key}" for side, each in of_model] == list(recorded), name
        for _, each in of_model:
            assert each.values.shape[:2] == (len(each.rows), len(each.columns)), name


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
    return one_line(error.errors()[0]["msg"])


def one_line(reason: str) -> str:
    """A reason as it is; it fails where there is none, or more than a line."""
    assert reason
    assert "\n" not in reason
    return reason
