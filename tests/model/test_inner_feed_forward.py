"""A second feed-forward sub-layer in each decoder layer, in front of the cross-attention."""

from __future__ import annotations

from deepwire.testing import small_model


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
