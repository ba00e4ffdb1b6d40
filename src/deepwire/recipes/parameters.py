"""Short names of the settings that a figure varies: ``layers=25`` where a recipe declares ``layers``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import cast

from deepwire.config.yaml_tree import PlainValue
from deepwire.errors import UsageError
from deepwire.recipes.notes import RecipeParameter

Parameters = Mapping[str, RecipeParameter]


def expanded(overrides: Sequence[str], parameters: Parameters, sections: Iterable[str]) -> list[str]:
    """``key=value`` settings with the keys that parameters stand for.

    Args:
        overrides: As given; ``key.sub=value`` stays as it is.
        parameters: What the run file declares.
        sections: Keys without a dot that are no parameters.

    Raises:
        UsageError: A key is neither.
    """
    result: list[str] = []
    for text in overrides:
        key, equals, value = text.partition("=")
        name = key.strip()
        if not equals or "." in name or name in sections or not parameters:
            result.append(text)
        elif name in parameters:
            result += [f"{target}={value}" for target in parameters[name].sets]
        else:
            raise UsageError(
                f"command line: {name}: is neither a section nor a parameter of this recipe",
                f"its parameters are {', '.join(parameters)}",
            )
    return result


def name_suffix(parameters: Parameters, resolved: Mapping[str, PlainValue]) -> str:
    """The suffix of a run's name for the values, such as ``-layers-25``: each its own directory."""
    suffix, whole = "", cast("PlainValue", resolved)
    for name, parameter in parameters.items():
        value = reduce(_entry, parameter.sets[0].split("."), whole)
        if isinstance(value, int | str):
            suffix += f"-{name}-{str(value).replace('/', '-')}"
    return suffix


def _entry(node: PlainValue, key: str) -> PlainValue:
    return node.get(key) if isinstance(node, dict) else None
