"""A second feed-forward sub-layer in each decoder layer, in front of the cross-attention."""

from __future__ import annotations

import pytest

from deepwire.testing import check_model, small_model


@pytest.mark.parametrize("connection", ["pre_norm", "post_norm", "rezero"])
def test_it_works_like_any_sub_layer(connection: str) -> None:
    decoder = {"connection": connection, "inner_feed_forward": True, "fusion": {"type": "groups", "size": 2}}
    languages = {} if connection == "rezero" else {"languages": {"norm": True}}
    check_model({"decoder": decoder, **languages})


def test_it_adds_a_feed_forward_and_a_norm_to_each_layer() -> None:
    plain, inner = (
        small_model({"decoder": {"connection": "post_norm", "inner_feed_forward": one}})
        for one in (False, True)
    )
    each = 2 * 16 * 24 + 24 + 2 * 16
    counts = [sum(parameter.numel() for parameter in one.parameters()) for one in (plain, inner)]
    assert counts[1] - counts[0] == 3 * each
    assert [call.kind for call in inner.decoder.calls[:4]] == [
        "mixer",
        "inner_feed_forward",
        "cross",
        "feed_forward",
    ]
    groups = inner.parameter_groups()
    assert groups["decoder inner feed-forward"] == 3 * (2 * 16 * 24 + 24)
