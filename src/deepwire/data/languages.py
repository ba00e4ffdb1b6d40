"""Languages and directions of multilingual models, and their language tags."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, cast, get_args

from deepwire.errors import ModelError, UsageError

TagPlace = Literal["source", "target", "both", "none"]

_LANGUAGE = r"[a-z]{2,3}(?:_[A-Za-z0-9]{2,8}|-[A-Z][A-Za-z0-9]{1,7}|-[0-9]{3})*"
# After a hyphen within a language tag there is no small letter, so a direction splits in only one way.
_DIRECTION = re.compile(f"({_LANGUAGE})-({_LANGUAGE})")
_FORM = "two or three small letters, then perhaps a script or country, such as de, pt_BR, zh-Hans"


class Direction(NamedTuple):
    """A source and a target language."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"

    @classmethod
    def parse(cls, text: str) -> Direction:
        """Parses `SRC-TGT`, such as `en-de` or `zh-Hans-pt_BR`; anything else is a ValueError."""
        match = _DIRECTION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a direction such as en-de: two languages, each {_FORM}")
        if match[1] == match[2]:
            raise ValueError(f"{text!r} translates a language into itself")
        return cls(match[1], match[2])


def check_language(name: str) -> None:
    """Raises a ValueError unless the name has the form of a language tag: `de`, `pt_BR`, `zh-Hans`."""
    if re.fullmatch(_LANGUAGE, name) is None:
        raise ValueError(f"{name!r} is not a language tag: {_FORM}")


@dataclass(frozen=True)
class Languages:
    """The directions that a model is trained in, and where language tags stand."""

    directions: tuple[Direction, ...]
    tag: TagPlace = "source"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every language once, sorted; its position here is the index of a language."""
        return tuple(sorted({name for direction in self.directions for name in direction}))

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The languages that some direction translates into, sorted."""
        return tuple(sorted({direction.target for direction in self.directions}))

    @property
    def tags(self) -> int:
        """Number of language tags; the id of the tag of language i is the vocabulary's size + i."""
        return 0 if self.tag == "none" else len(self.names)

    @property
    def tags_source(self) -> bool:
        """Whether the source begins with the tag of the target language."""
        return self.tag in ("source", "both")

    @property
    def tags_target(self) -> bool:
        """Whether the decoder begins with the tag of the target language instead of BOS."""
        return self.tag in ("target", "both")

    @cached_property
    def indices(self) -> tuple[tuple[int, int], ...]:
        """The indices of the source and the target language of each direction."""
        index = {name: i for i, name in enumerate(self.names)}
        return tuple((index[direction.source], index[direction.target]) for direction in self.directions)

    @property
    def unordered(self) -> tuple[TagPlace, frozenset[Direction]]:
        """A value to compare models by, in which the order of the directions does not count."""
        return self.tag, frozenset(self.directions)

    def target(self, name: str) -> int:
        """The index of a language to translate into.

        Raises:
            UsageError: The model was not trained to translate into it.
        """
        name = closest_label(name, self.targets)
        if name not in self.targets:
            known = f"it translates into {', '.join(self.targets)}"
            if name in self.names:
                raise UsageError(f"the model reads {name!r} but was not trained to write it", known)
            raise UsageError(f"the model does not know the language {name!r}", known)
        return self.names.index(name)

    def require_source(self, name: str) -> None:
        """Raises a UsageError if the model does not know a language to translate from."""
        if closest_label(name, self.names) not in self.names:
            raise UsageError(
                f"the model does not know the language {name!r}", f"it knows {', '.join(self.names)}"
            )

    def to_metadata(self) -> dict[str, object]:
        """The languages in the metadata of a stored model."""
        return {
            "languages": list(self.names),
            "directions": [str(direction) for direction in self.directions],
            "tag": self.tag,
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> Languages | None:
        """Parses what `to_metadata` returned; None for a model of one direction.

        Raises:
            ModelError: It is damaged.
        """
        directions, tag = metadata.get("directions"), metadata.get("tag")
        if directions is None:
            return None
        try:
            languages = cls(_parse_directions(directions), cast("TagPlace", tag))
        except ValueError as fault:
            raise ModelError(f"the stored languages are damaged: {fault}") from None
        if tag not in get_args(TagPlace) or metadata.get("languages") != list(languages.names):
            raise ModelError("the stored languages are damaged: languages, directions and tag do not agree")
        return languages


def closest_label(name: str, labels: Collection[str]) -> str:
    """The label that a name means, such as `pt_BR` for `pt` or `pt-br`; the name itself if there is none.

    A name without a country means the only label of its language; `zh` never means traditional script.
    """
    if name in labels:
        return name
    normalized = {label: label.lower().replace("_", "-") for label in labels}
    wanted = name.lower().replace("_", "-")
    matches = [label for label, form in normalized.items() if form == wanted]
    if not matches:
        traditional = ("hant", "tw", "hk")
        matches = [
            label
            for label, form in normalized.items()
            if form.startswith(f"{wanted}-") and not form.endswith(traditional)
        ]
    return matches[0] if len(matches) == 1 else name


def expand_directions(value: object) -> object:
    """Expands `directions` of a run file into a list of `SRC-TGT`; None and an empty list stay.

    An item is one of:

    - `SRC-TGT`;
    - `{between: [...], and: [...]}`: both ways between each language of one list and each of the other;
    - `{between: [...]}`: both ways between all languages of a list;
    - `{from: [...], to: [...]}`: one way from each language of one list into each of the other.

    Raises:
        ValueError: An item is something else, or a direction is named twice.
    """
    if value is None or value == []:
        return value
    items = value if isinstance(value, list | tuple) else [value]
    names: list[str] = []
    for item in items:
        for direction in _expand_item(item):
            if str(direction) in names:
                raise ValueError(f"{direction} is named twice")
            names.append(str(direction))
    return names


def _parse_directions(directions: object) -> tuple[Direction, ...]:
    if not isinstance(directions, Sequence) or isinstance(directions, str) or not directions:
        raise ValueError(f"no directions: {directions!r}")
    return tuple(Direction.parse(str(direction)) for direction in directions)


def _expand_item(item: object) -> list[Direction]:
    if isinstance(item, str):
        return [Direction.parse(item)]
    keys = set(item) if isinstance(item, Mapping) else set()
    if not isinstance(item, Mapping) or keys not in ({"between"}, {"between", "and"}, {"from", "to"}):
        raise ValueError(
            "a direction is written en-de, {between: [en], and: [de, fr]} or {from: [en], to: [de, fr]}, "
            f"not {item!r}"
        )
    one_way = "to" in keys
    first = _checked_names(item["from" if one_way else "between"])
    other = "to" if one_way else "and"
    second = _checked_names(item[other]) if other in keys else first
    pairs = [(source, target) for source in first for target in second if source != target]
    if not pairs:
        raise ValueError(f"there is nothing between {', '.join(first)} and {', '.join(second)}")
    if not one_way:
        pairs = [direction for pair in pairs for direction in (pair, pair[::-1])]
    return [Direction(*pair) for pair in dict.fromkeys(pairs)]


def _checked_names(value: object) -> list[str]:
    names = value if isinstance(value, list | tuple) else [value]
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"{name!r} is not a language tag such as de (put it in quotes)")
        check_language(name)
    return list(names)


# Default values of data.source and data.target, in run files that name no languages.
_DEFAULT_NAMES = ("source", "target")


def named_direction(metadata: Mapping[str, object]) -> Direction | None:
    """The direction in the metadata of a model of one direction; None if its languages are not named."""
    source, target = metadata.get("source"), metadata.get("target")
    if (source, target) == _DEFAULT_NAMES or not isinstance(source, str) or not isinstance(target, str):
        return None
    return Direction(source, target)


def known_directions(metadata: Mapping[str, object]) -> tuple[Direction, ...]:
    """All directions in the metadata of a model; empty if its languages are not named."""
    languages = Languages.from_metadata(metadata)
    if languages is not None:
        return languages.directions
    only = named_direction(metadata)
    return () if only is None else (only,)
