"""The languages of a model with several directions, and the tags that tell it what to translate into."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, cast, get_args

from deepwire.errors import ModelError, UsageError

TagPlace = Literal["source", "target", "both", "none"]

_LANGUAGE = r"[a-z]{2,3}(?:_[A-Za-z0-9]{2,8}|-[A-Z][A-Za-z0-9]{1,7}|-[0-9]{3})*"
# What follows a hyphen within a language tag is never a small letter, so a direction is cut in one way only.
_LANGUAGE_TAG = re.compile(_LANGUAGE)
_DIRECTION = re.compile(f"({_LANGUAGE})-({_LANGUAGE})")
_FORM = "two or three small letters, then perhaps a script or country, such as de, pt_BR, zh-Hans"


class Direction(NamedTuple):
    """From which language into which."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"

    @classmethod
    def parse(cls, text: str) -> Direction:
        """Read `SRC-TGT`, such as `en-de` or `zh-Hans-pt_BR`; a ValueError where it is something else."""
        match = _DIRECTION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a direction such as en-de: {_wrong_language(text)}")
        if match[1] == match[2]:
            raise ValueError(f"{text!r} translates a language into itself")
        return cls(match[1], match[2])


def checked_language(name: str) -> str:
    """The name, if it has the form of a language tag: `de`, `pt_BR`, `zh-Hans`; else a ValueError."""
    if _LANGUAGE_TAG.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a language tag: {_FORM}")
    return name


def _wrong_language(text: str) -> str:
    names = text.split("-")
    wrong = next((name for name in names if _LANGUAGE_TAG.fullmatch(name) is None), None)
    if len(names) != 2 or wrong is None:
        return f"two languages, each {_FORM}"
    return f"{wrong!r} is not a language tag: {_FORM}"


@dataclass(frozen=True)
class Languages:
    """The directions that a model is trained in, and where its input says what to translate into."""

    directions: tuple[Direction, ...]
    tag: TagPlace = "source"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every language once, sorted; the place of a language is its index."""
        return tuple(sorted({name for direction in self.directions for name in direction}))

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The languages that some direction translates into, sorted."""
        return tuple(sorted({direction.target for direction in self.directions}))

    @property
    def tags(self) -> int:
        """How many tags stand behind the pieces of the vocabulary; the tag of language i is pieces + i."""
        return 0 if self.tag == "none" else len(self.names)

    @property
    def tags_source(self) -> bool:
        """Whether a source begins with the tag of its target language."""
        return self.tag in ("source", "both")

    @property
    def tags_target(self) -> bool:
        """Whether the decoder begins with the tag of the target language, and not with BOS."""
        return self.tag in ("target", "both")

    @cached_property
    def indices(self) -> tuple[tuple[int, int], ...]:
        """The indices of the source and the target language of each direction."""
        index = {name: place for place, name in enumerate(self.names)}
        return tuple((index[direction.source], index[direction.target]) for direction in self.directions)

    @property
    def unordered(self) -> tuple[TagPlace, frozenset[Direction]]:
        """A value that is equal for equal models: the order of the directions means nothing."""
        return self.tag, frozenset(self.directions)

    def target(self, name: str) -> int:
        """The index of a language to translate into.

        Raises:
            UsageError: the model was not trained to translate into it.
        """
        name = closest_label(name, self.targets)
        if name not in self.targets:
            known = f"it translates into {', '.join(self.targets)}"
            if name in self.names:
                raise UsageError(f"the model reads {name!r} but was not trained to write it", known)
            raise UsageError(f"the model does not know the language {name!r}", known)
        return self.names.index(name)

    def require_source(self, name: str) -> None:
        """Check that the model knows a language to translate from; a UsageError where it does not."""
        if closest_label(name, self.names) not in self.names:
            raise UsageError(
                f"the model does not know the language {name!r}", f"it knows {', '.join(self.names)}"
            )

    def to_metadata(self) -> dict[str, object]:
        """The record of the languages in a stored model."""
        return {
            "languages": list(self.names),
            "directions": [str(direction) for direction in self.directions],
            "tag": self.tag,
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> Languages | None:
        """Read what `to_metadata` gave; None where the model has one direction only.

        Raises:
            ModelError: it is damaged.
        """
        directions, tag = metadata.get("directions"), metadata.get("tag")
        if directions is None:
            return None
        try:
            languages = cls(_parsed(directions), cast("TagPlace", tag))
        except ValueError as fault:
            raise ModelError(f"the stored languages are damaged: {fault}") from None
        if tag not in get_args(TagPlace) or metadata.get("languages") != list(languages.names):
            raise ModelError("the stored languages are damaged: languages, directions and tag do not agree")
        return languages


def closest_label(name: str, labels: Collection[str]) -> str:
    """The one of some labels that a name means, such as `pt_BR` of `pt` or `pt-br`; else the name.

    A name without a country means the only label of its language. `zh` means no traditional script.
    """
    if name in labels:
        return name
    plain = {label: label.lower().replace("_", "-") for label in labels}
    wanted = name.lower().replace("_", "-")
    same = [label for label in labels if plain[label] == wanted]
    if not same:
        traditional = ("hant", "tw", "hk")
        same = [
            label
            for label in labels
            if plain[label].startswith(f"{wanted}-") and not plain[label].endswith(traditional)
        ]
    return same[0] if len(same) == 1 else name


def expanded(value: object) -> object:
    """`directions` of a run file as a list of `SRC-TGT`; what is no list of directions comes back as it is.

    An item is `SRC-TGT`; or `{between: [...], and: [...]}`, both ways between each language of one list and
    each of the other; or `{between: [...]}`, both ways between all languages of a list; or
    `{from: [...], to: [...]}`, one way from each of one list into each of the other.

    Raises:
        ValueError: an item is something else, or a direction comes twice.
    """
    if value is None or value == []:
        return value
    items = value if isinstance(value, list | tuple) else [value]
    names: list[str] = []
    for item in items:
        for direction in _directions_of(item):
            if str(direction) in names:
                raise ValueError(f"{direction} is named twice")
            names.append(str(direction))
    return names


def _parsed(directions: object) -> tuple[Direction, ...]:
    if not isinstance(directions, Sequence) or isinstance(directions, str) or not directions:
        raise ValueError(f"no directions: {directions!r}")
    return tuple(Direction.parse(str(direction)) for direction in directions)


def _directions_of(item: object) -> Iterable[Direction]:
    if isinstance(item, str):
        return [Direction.parse(item)]
    keys = set(item) if isinstance(item, Mapping) else set()
    if not isinstance(item, Mapping) or keys not in ({"between"}, {"between", "and"}, {"from", "to"}):
        raise ValueError(
            "a direction is written en-de, {between: [en], and: [de, fr]} or {from: [en], to: [de, fr]}, "
            f"not {item!r}"
        )
    first = _names(item["from" if "from" in keys else "between"])
    second = _names(item["to"]) if "to" in keys else _names(item["and"]) if "and" in keys else first
    pairs = [(source, target) for source in first for target in second if source != target]
    if not pairs:
        raise ValueError(f"there is nothing between {', '.join(first)} and {', '.join(second)}")
    if "to" not in keys:
        pairs = [direction for pair in pairs for direction in (pair, pair[::-1])]
    return [Direction(*pair) for pair in dict.fromkeys(pairs)]


def _names(value: object) -> list[str]:
    names = value if isinstance(value, list | tuple) else [value]
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"{name!r} is not a language tag such as de (put it in quotes)")
        checked_language(name)
    return list(names)


_UNNAMED = "source", "target"
"""The values of `data.source` and `data.target` in a run file that names no languages."""


def named_direction(metadata: Mapping[str, object]) -> Direction | None:
    """The direction in the description of a model of one direction; None where it names none."""
    source, target = metadata.get("source"), metadata.get("target")
    if (source, target) == _UNNAMED or not isinstance(source, str) or not isinstance(target, str):
        return None
    return Direction(source, target)


def known_directions(metadata: Mapping[str, object]) -> tuple[Direction, ...]:
    """All directions in the description of a model; none where it names no languages."""
    languages = Languages.from_metadata(metadata)
    if languages is not None:
        return languages.directions
    only = named_direction(metadata)
    return () if only is None else (only,)
