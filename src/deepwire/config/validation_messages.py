"""Turns what pydantic reports into lines for a person: file and line, key, what is wrong, what is right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from deepwire.config.section import Section, child, described_keys, sections, tags
from deepwire.config.yaml_tree import Node, Problems, SourceLocation

_KINDS = {
    "string": "a text",
    "path": "a text (a path)",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "none": "empty",
}
_KIND_ERROR = re.compile(rf"({'|'.join(_KINDS)})_(type|parsing|required|attributes_type|from_float)")
_LIMITS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
    "multiple_of": ("multiple_of", "a multiple of"),
}
_CHOICES = {"union_tag_invalid", "literal_error", "enum"}
_MAX_ERRORS = 200
_NEAR = 0.7  # how like a key beside it a key must be for that to be suggested


def first_fault(error: Exception) -> str:
    """The fault of stored values, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


@dataclass(frozen=True)
class _Mistake:
    """An error of pydantic, and where it belongs in the run file.

    Attributes:
        error: What pydantic says.
        path: The keys that lead there.
        node: What was written there; None for a key that is missing.
        location: Where.
        annotation: What may stand there.
        owner: What may stand around it.
        member: (length of the path, name) of the first union member that pydantic tried, if any.
    """

    error: ErrorDetails
    path: tuple[str | int, ...]
    node: Node | None
    location: SourceLocation
    annotation: object | None
    owner: object | None
    member: tuple[int, str] | None

    @property
    def kind(self) -> str:
        return self.error["type"]

    @property
    def is_kind_error(self) -> bool:
        """Whether the value is of a wrong kind as a whole."""
        return _KIND_ERROR.fullmatch(self.kind) is not None


def note_errors(
    errors: Sequence[ErrorDetails], root: Node, section: type[Section], problems: Problems
) -> None:
    """Add one line for each mistake behind ``errors``, in the order of the run file.

    Args:
        errors: What pydantic found when ``section`` was built from the plain values of ``root``.
        root: The tree, for lines and for what was written.
        section: The class that was built, for suggestions.
        problems: Where the lines go.
    """
    # A default that depends on other settings is unknown while these are wrong: no mistake of its own.
    errors = [error for error in errors if error["type"] != "default_factory_not_called"]
    problems.more += max(0, len(errors) - _MAX_ERRORS)
    mistakes = [_located(error, root, section) for error in errors[:_MAX_ERRORS]]
    mistakes = [each for each in mistakes if not _counts_wrong_items(each)]
    lines: dict[tuple[SourceLocation, str], None] = {}
    for mistake, besides in _of_unions(mistakes):
        name = ".".join(map(str, mistake.path))
        text = _described(mistake, section, besides)
        lines[mistake.location, f"{name}: {text}" if name else text] = None
    for location, text in sorted(lines, key=lambda entry: entry[0].line or 0):
        problems.add(location, text)


def describe_value(node: Node | None) -> str:
    """The value as a message names it: short, on one line."""
    value = "this" if node is None else node.value
    if node is None or isinstance(value, list | dict):
        return "this" if node is None else "a list" if isinstance(value, list) else "a mapping"
    if value is None or isinstance(value, bool):
        return "empty" if value is None else str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _counts_wrong_items(mistake: _Mistake) -> bool:
    """Whether a list is called too short for its wrong items, which have mistakes of their own."""
    written = () if mistake.node is None else mistake.node.value
    least = mistake.error.get("ctx", {}).get("min_length", 0)
    return mistake.kind == "too_short" and isinstance(written, list) and len(written) >= least


def _located(error: ErrorDetails, root: Node, section: type[Section]) -> _Mistake:
    """Follow the location of an error through the tree, leaving out what pydantic calls union members."""
    path: tuple[str | int, ...] = ()
    node: Node | None = root
    location, here, owner = root.location, section, None
    annotation: object | None = here
    member: tuple[int, str] | None = None
    for part in error["loc"]:
        tag = None if node is None else node.type
        written = None if node is None else node.below(part)
        if part == "type" and node is not None and not isinstance(node.value, dict):
            break  # a plain name that stands for a section of this type
        if written is None:
            named = next((each for each in sections(annotation) if part in tags(each)), None)
            if named is not None:
                annotation = named
                continue
            if isinstance(part, int):  # a single value that stands for a list of one
                annotation = child(annotation, part)
                continue
            if child(annotation, part, tag) is None and error["type"] != "missing":
                member = member or (len(path), part)
                continue
        path, owner, annotation = (*path, part), annotation, child(annotation, part, tag)
        node = written
        location = location if node is None else node.location
    if error["type"] == "value_error" and node is not None and isinstance(node.value, dict):
        location = _named_in(str(error["msg"]), node) or location
    return _Mistake(error, path, node, location, annotation, owner, member)


def _named_in(message: str, node: Node) -> SourceLocation | None:
    """Where the keys that a section's message names were written; the command line comes first."""
    locations = []
    for name in re.findall(r"\w[\w.-]*", message):
        here = node
        for part in name.split("."):
            here = here.below(part) or here
        if here is not node:
            locations.append(here.location)
    return next((each for each in locations if each.line is None), locations[0] if locations else None)


def _of_unions(mistakes: Sequence[_Mistake]) -> Iterator[tuple[_Mistake, list[str]]]:
    """Leave of a union only the mistakes in the member that fits best; and what else may stand there."""
    unions: dict[tuple[str | int, ...], dict[str, list[_Mistake]]] = {}
    for mistake in mistakes:
        if mistake.member is None:
            yield mistake, []
        else:
            length, name = mistake.member
            unions.setdefault(mistake.path[:length], {}).setdefault(name, []).append(mistake)
    for path, members in unions.items():
        wrong_kinds = [
            each[0]
            for each in members.values()
            if all(one.is_kind_error and one.path == path for one in each)
        ]
        fitting = [each for each in members.values() if each[0] not in wrong_kinds]
        kinds = list(dict.fromkeys(_kind(each) for each in wrong_kinds))
        if not fitting:
            yield wrong_kinds[0], kinds
            continue
        plain = [kind for kind in kinds if kind in (_KINDS["int"], _KINDS["float"], _KINDS["bool"])]
        for mistake in min(fitting, key=len):
            yield mistake, plain if mistake.path == path else []


def _kind(mistake: _Mistake) -> str:
    match = _KIND_ERROR.fullmatch(mistake.kind)
    return _KINDS[match[1]] if match else "something else"


def _described(mistake: _Mistake, section: type[Section], besides: Sequence[str]) -> str:
    """Say what is wrong; `besides` are the kinds of values that may stand there, too."""
    kind, node, context = mistake.kind, mistake.node, mistake.error.get("ctx", {})
    value = describe_value(node)
    if kind == "extra_forbidden":
        return f"unknown key{_other_key(mistake, section)}"
    if kind == "missing":
        return "is missing and has no default"
    if kind in {"value_error", "assertion_error"}:
        return str(context.get("error", mistake.error["msg"]))
    if kind in _CHOICES:
        written, choices = None if node is None else node.type, _allowed(mistake)
        close = difflib.get_close_matches(str(written), choices, n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        return f"must be {_one_of([*besides, *choices])}, not {describe_value(_plain(node))}{meant}"
    choices = [tag for each in sections(mistake.annotation) for tag in tags(each)]
    if kind == "union_tag_not_found" or (choices and mistake.is_kind_error):
        if node is not None and isinstance(node.value, dict):
            return f"needs a key type: {_one_of(choices)}"
        return f"must be {_one_of(choices)}, not {value}"
    if besides:
        return f"must be {' or '.join(besides)}, not {value}"
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        return f"must be {words} {context.get(name)}, not {value}"
    if kind == "too_short" and node is not None and isinstance(node.value, list):
        least = "an entry" if context["min_length"] == 1 else f"{context['min_length']} entries"
        return f"must have at least {least}, not {len(node.value)}"
    if kind == "model_type" and (
        keys := [name for each in sections(mistake.annotation) for name in each.model_fields]
    ):
        example = ".".join(map(str, [*mistake.path, keys[0]]))
        return f"must be a section, not {value}: set one of its keys, such as {example}"
    if mistake.is_kind_error:
        quotes = " (put it in quotes)" if kind == "string_type" and _plain(node) is not None else ""
        return f"must be {_kind(mistake)}, not {value}{quotes}"
    text = re.sub(r"^\w+ should", "must", mistake.error["msg"])
    return f"{text[:1].lower()}{text[1:]}{f', not {value}' if _plain(node) is not None else ''}"


def _plain(node: Node | None) -> Node | None:
    """The node of a value that is no list and no mapping; of a mapping that of its type."""
    if node is not None and isinstance(node.value, dict):
        return node.below("type")
    return node if node is not None and not isinstance(node.value, list) else None


def _allowed(mistake: _Mistake) -> list[str]:
    context = mistake.error.get("ctx", {})
    listed = str(context.get("expected_tags", context.get("expected", "")))
    return re.findall(r"'([^']*)'", listed) or re.findall(r"\d+", listed)


def _one_of(choices: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(choices[:-1]), *choices[-1:])))


def _other_key(mistake: _Mistake, section: type[Section]) -> str:
    """The key that was meant: a similar one beside it, or the same elsewhere; else all known here."""
    *parents, word = map(str, mistake.path)
    beside = list(dict.fromkeys(name for each in sections(mistake.owner) for name in each.model_fields))
    if close := difflib.get_close_matches(word, beside, n=1, cutoff=_NEAR):
        return f" (did you mean {'.'.join([*parents, *close])}?)"
    here = ".".join([*parents, word])  # another member of a union may know the very same key
    same = [key for key, _ in described_keys(section) if key.endswith(f".{word}") or key == word]
    same = [key for key in same if key != here]
    same = [key for key in same if key.split(".")[0] in parents[:1]] or same
    least = min((key.count(".") for key in same), default=0)
    nearest = [key for key in same if key.count(".") == least]
    if nearest and len(nearest) <= 2:
        return f" (did you mean {' or '.join(nearest)}?)"
    return f" (known: {', '.join(beside)})" if beside else ""
