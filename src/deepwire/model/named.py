"""A choice in a run file may be written as its name alone: `connection: pre_norm`."""

from __future__ import annotations

from pydantic import BeforeValidator


def _named(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


by_name = BeforeValidator(_named)
