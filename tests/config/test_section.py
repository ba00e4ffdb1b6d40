from __future__ import annotations

from deepwire.config.section import flatten


def test_leaves_of_settings() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": [2]}}, "e": None}) == {"a.b": 1, "a.c.d": [2], "e": None}
