"""Numbers of things in messages."""

from __future__ import annotations


def counted(number: int, singular: str, several: str = "") -> str:
    """`1 line` or `2,000 lines`; without `several` an s is put at the end."""
    return f"{number:,} {singular if number == 1 else several or f'{singular}s'}"
