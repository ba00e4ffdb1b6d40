"""Numbers as people write them: ``4k``, ``1.5M``, ``100_000``, and durations ``20ku``, ``30e``, ``1Gt``."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import index
from typing import Annotated, Literal, SupportsFloat, cast

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from deepwire.errors import UsageError

Unit = Literal["updates", "epochs", "tokens"]
Positive = Annotated[float, Field(gt=0)]
"""A number above 0."""
Probability = Annotated[float, Field(ge=0, lt=1)]
"""From 0 to below 1."""

MAX_SIZE = 2**24
"""Largest size of anything: beyond it, numbers of elements would overflow 64-bit integers."""
MAX_THREADS = 4096
"""Largest number of threads."""

_SCALES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_UNITS: dict[str, Unit] = {"": "updates", "u": "updates", "e": "epochs", "t": "tokens"}
_LETTERS: dict[Unit, str] = {"updates": "u", "epochs": "e", "tokens": "t"}
_NUMBER = re.compile(r"([-+]?\d[\d_]{0,30}(?:\.\d{1,20})?)([kKmMgG]?)", re.ASCII)
_DURATION = re.compile(r"([-+]?\d[\d_]{0,30}(?:\.\d{1,20})?)([kKmMgG]?)([uet]?)", re.ASCII)


def parse_count(value: object) -> int:
    """Parses a whole number with an optional scale: ``4k`` is 4,000, ``1.5M`` is 1,500,000, ``1G`` a billion.

    Raises:
        ValueError: The value is not a whole number.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be a whole number such as 4096, 4k or 1.5M, not {shown(value)}")
    return _scaled(match[1], match[2], str(value))


def require_int(value: object, name: str, least: int, hint: str = "", *, most: int | None = None) -> int:
    """Checks that an argument of a function is a whole number in a range; numpy integers are accepted.

    Args:
        value: The argument.
        name: Its name.
        least: The smallest number allowed.
        hint: The hint of the error for a number below that.
        most: The largest number allowed.

    Raises:
        UsageError: It is not a whole number, or out of range.
    """
    try:
        number = least - 1 if isinstance(value, bool) else index(cast("int", value))
    except TypeError:
        number = least - 1
    if number < least:
        raise UsageError(f"{name}: must be a whole number of {least} or more, not {shown(value)}", hint)
    if most is not None and number > most:
        raise UsageError(f"{name}: must be at most {most}, not {shown(value)}")
    return number


def as_float(value: object) -> float:
    """An argument of a function as a float; NaN if it is not a number."""
    try:
        return float(value) if isinstance(value, SupportsFloat) else math.nan
    except (TypeError, ValueError, RuntimeError, OverflowError):  # an array of several
        return math.nan


_CountText = Annotated[str, Field(pattern=r"^[-+]?[0-9][0-9_]*(\.[0-9]+)?[kKmMgG]?$")]
Count = Annotated[int, BeforeValidator(parse_count, json_schema_input_type=_CountText)]
"""A whole number of a run file; may be written ``4k``, ``25k``, ``1.5M`` or ``100_000``."""


@dataclass(frozen=True)
class Duration:
    """A number of updates, epochs or target tokens.

    Written ``20ku`` (or ``20k``) for 20,000 updates, ``30e`` for 30 epochs, ``1Gt`` for a billion target
    tokens.
    """

    amount: int
    unit: Unit = "updates"

    @classmethod
    def parse(cls, value: object) -> Duration:
        """Parses a duration; a number without a unit counts updates.

        Raises:
            ValueError: The value is not a duration greater than zero.
        """
        if isinstance(value, cls):
            return value
        whole = isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
        text = str(parse_count(value)) if whole else value
        match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise ValueError(
                f"must be a length such as 20ku (updates), 30e (epochs) or 1Gt (target tokens), "
                f"not {shown(value)}"
            )
        amount = _scaled(match[1], match[2], str(value))
        if amount <= 0:
            raise ValueError(f"must be greater than 0, not {shown(value)}")
        return cls(amount, _UNITS[match[3]])

    def __str__(self) -> str:
        for letter, scale in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
            if self.amount % scale == 0:
                return f"{self.amount // scale}{letter}{_LETTERS[self.unit]}"
        return f"{self.amount}{_LETTERS[self.unit]}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Makes pydantic read a field of this type with ``parse`` and write it with ``str``."""
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.to_string_ser_schema(when_used="always")
        )


def _scaled(digits: str, scale: str, original: str) -> int:
    # Decimal, because 1.1k in binary floating point is not 1100.
    number = Decimal(digits.replace("_", "")) * _SCALES[scale.lower()]
    if number != number.to_integral_value():
        raise ValueError(f"must be a whole number, not {original}")
    return int(number)


def shown(value: object) -> str:
    """The repr of a value, cut to 40 characters, for messages."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def first_few(names: Sequence[str], most: int = 5) -> str:
    """Joins names by commas, the first `most` of them only: `a, b, c, d, e and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(number: int, singular: str, plural: str = "") -> str:
    """A number with its noun: `1 line` or `2,000 lines`; the plural defaults to the singular with an s."""
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"
