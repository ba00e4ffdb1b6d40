"""Turns what pydantic reports into lines for a person: file and line, key, what is wrong, what is right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from pydantic_core import ErrorDetails

from deepwire.config.choice import Choice
from deepwire.config.section import Section, child, described_keys, sections, tags
from deepwire.config.yaml_tree import MappingNode, Node, Problems, ScalarNode, SequenceNode, SourceLocation

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
_KIND_ERROR = re.compile(
    r"(string|path|int|float|bool|list|tuple|dict|model|none)_(type|parsing|required|attributes_type)"
)
_LIMITS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
    "multiple_of": ("multiple_of", "a multiple of"),
}


_MOST_ERRORS = 200
_ELSEWHERE = (
    "is it in another package? install it with its entry points, name the class itself "
    "(my_package.MyConfig), or import the package with --plugin my_package"
)
_NEAR = 0.7
"""How like a key beside it a key must be for that to be suggested."""


@dataclass(frozen=True)
class _ErrorLocation:
    """Where an error of pydantic belongs in the run file."""

    path: tuple[str | int, ...]
    location: SourceLocation
    node: Node | None
    annotation: object | None
    beside: tuple[str, ...]
    """The keys that may stand beside the last key of the path."""
    member: tuple[int, str] | None
    """(length of the path, name) of the first union member that pydantic tried; not a key of the run file."""
    in_lone: bool
    """Whether the last key stands in a value that stands for a list of one."""


def note_errors(
    errors: Sequence[ErrorDetails], root: MappingNode, section: type[Section], problems: Problems
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
    located = [(_locate(error, root, section), error) for error in errors[:_MOST_ERRORS]]
    problems.more += len(errors) - len(located)
    located = [(error_at, error) for error_at, error in located if not _counts_wrong_items(error_at, error)]
    lines: dict[tuple[SourceLocation, str], None] = {}
    for error_at, text in _merge_unions(located, section):
        name = ".".join(str(part) for part in error_at.path)
        lines[error_at.location, f"{name}: {text}" if name else text] = None
    for location, text in sorted(lines, key=lambda entry: entry[0].line or 0):
        problems.add(location, text)
    if any(_may_be_elsewhere(error_at, error) for error_at, error in located):
        problems.hint = _ELSEWHERE


def _counts_wrong_items(error_at: _ErrorLocation, error: ErrorDetails) -> bool:
    """Whether a list is called too short for its wrong items, which have errors of their own."""
    node = error_at.node
    written = node.items if isinstance(node, SequenceNode) else getattr(node, "entries", ())
    return error["type"] == "too_short" and len(written) >= error.get("ctx", {})["min_length"]


def describe_value(node: Node | None) -> str:
    """The value as a message names it: short, on one line."""
    if node is None:
        return "this"
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    if node.value is None:
        return "empty"
    if isinstance(node.value, bool):
        return str(node.value).lower()
    text = repr(node.value)
    return text if len(text) <= 60 else text[:57] + "..."


def _locate(error: ErrorDetails, root: MappingNode, section: type[Section]) -> _ErrorLocation:
    """Follow the location of a pydantic error through the tree, leaving out the names of union members."""
    path: tuple[str | int, ...] = ()
    node: Node | None = root
    location, annotation = root.location, section
    here: object | None = annotation
    member: tuple[int, str] | None = None
    beside: dict[str, None] = {}
    lone: tuple[str | int, ...] | None = None
    for part in error["loc"]:
        tag = _type_of(node)
        if part == "type" and isinstance(node, ScalarNode):
            break  # a plain name that stands for a section of this type
        if isinstance(part, str) and (part == tag or _is_tag(part, here)) and not _holds(node, part):
            here = _narrow(here, part)
            continue
        below = child(here, part, tag)
        if isinstance(part, str) and below is None and not _holds(node, part) and error["type"] != "missing":
            member = member or (len(path), part)
            continue
        if isinstance(part, int) and not isinstance(node, SequenceNode):
            here, lone = below, path  # a single value that stands for a list of one
            continue
        beside = dict.fromkeys(name for s in sections(here) for name in s.model_fields)
        path, here = (*path, part), below
        node = _below(node, part)
        location = node.location if node is not None else location
    if error["type"] == "value_error" and isinstance(node, MappingNode):
        location = _named_in(str(error["msg"]), node) or location
    return _ErrorLocation(path, location, node, here, tuple(beside), member, in_lone=path[:-1] == lone)


def _named_in(message: str, node: MappingNode) -> SourceLocation | None:
    """Where the keys that a section's message names were written; the command line comes first."""
    locations = []
    for name in re.findall(r"\w[\w.-]*", message):
        here: Node | None = None
        for part in name.split("."):
            here = _below(here or node, part) or here
        if here is not None:
            locations.append(here.location)
    return next(
        (location for location in locations if location.line is None), locations[0] if locations else None
    )


def _below(node: Node | None, part: str | int) -> Node | None:
    if isinstance(node, MappingNode) and isinstance(part, str):
        return node.entries.get(part)
    if isinstance(node, SequenceNode) and isinstance(part, int) and 0 <= part < len(node.items):
        return node.items[part]
    return None


def _holds(node: Node | None, key: str) -> bool:
    return isinstance(node, MappingNode) and key in node.entries


def _type_of(node: Node | None) -> object:
    """The tag that tells which union member was meant: the ``type`` key, or the plain text itself."""
    chosen = node.entries.get("type") if isinstance(node, MappingNode) else node
    return chosen.value if isinstance(chosen, ScalarNode) else None


def _is_tag(part: str, annotation: object | None) -> bool:
    return any(part in tags(section) for section in sections(annotation))


def _narrow(annotation: object | None, tag: str) -> object | None:
    return next((section for section in sections(annotation) if tag in tags(section)), annotation)


def _merge_unions(
    located: list[tuple[_ErrorLocation, ErrorDetails]], section: type[Section]
) -> list[tuple[_ErrorLocation, str]]:
    """One set of errors per value: of the members of a union, only what the nearest one found wrong."""
    lines: list[tuple[_ErrorLocation, str]] = []
    unions: dict[tuple[str | int, ...], dict[str, list[tuple[_ErrorLocation, ErrorDetails]]]] = {}
    for error_at, error in located:
        if error_at.member is None:
            lines.append((error_at, _describe(error_at, error, section)))
        else:
            members = unions.setdefault(error_at.path[: error_at.member[0]], {})
            members.setdefault(error_at.member[1], []).append((error_at, error))
    for path, members in unions.items():
        fitting = {
            name: faults
            for name, faults in members.items()
            if not all(
                error_at.path == path and _KIND_ERROR.fullmatch(error["type"]) for error_at, error in faults
            )
        }
        if fitting:
            nearest = min(fitting.values(), key=len)
            # A word that is none of the choices could have been a number, too.
            others = (faults[0][1]["type"] for name, faults in members.items() if name not in fitting)
            plain = [_kind(kind) for kind in others if kind.startswith(("int_", "float_", "bool_"))]
            lines.extend(
                (error_at, _describe(error_at, error, section, plain if error_at.path == path else ()))
                for error_at, error in nearest
            )
            continue
        error_at = next(iter(members.values()))[0][0]
        kinds = dict.fromkeys(_kind(error["type"]) for faults in members.values() for _, error in faults)
        lines.append((error_at, f"must be {' or '.join(kinds)}, not {describe_value(error_at.node)}"))
    return lines


def _kind(error_type: str) -> str:
    match = _KIND_ERROR.fullmatch(error_type)
    return _KINDS[match[1]] if match else "something else"


def _describe(
    error_at: _ErrorLocation, error: ErrorDetails, section: type[Section], besides: Sequence[str] = ()
) -> str:
    """Describe the mistake; `besides` are kinds of values that may stand in place of a choice."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        if error_at.in_lone and str(error_at.path[-1]).isdecimal():
            return f"there is no such item: {'.'.join(map(str, error_at.path[:-1]))} is no list"
        return f"unknown key{_other_key(error_at, section)}"
    if kind == "missing":
        return "is missing and has no default"
    if kind in {"union_tag_invalid", "literal_error", "enum"}:
        choices, written = _allowed(error), _type_of(error_at.node)
        return f"must be {_one_of([*besides, *choices])}, not {written!r}{_close(str(written), choices)}"
    choices = [tag for s in sections(error_at.annotation) for tag in tags(s)]
    if kind == "union_tag_not_found" or (choices and _KIND_ERROR.fullmatch(kind)):
        if isinstance(error_at.node, MappingNode):
            return f"needs a key type: {_one_of(choices)}"
        return f"must be {_one_of(choices)}, not {describe_value(error_at.node)}"
    if wanted := wanted_number(error):
        return f"must be {wanted}, not {describe_value(error_at.node)}"
    if kind == "too_short" and isinstance(error_at.node, SequenceNode):
        least = "an entry" if context["min_length"] == 1 else f"{context['min_length']} entries"
        return f"must have at least {least}, not {len(error_at.node.items)}"
    if kind in {"value_error", "assertion_error"}:
        return str(context.get("error", error["msg"]))
    if kind == "model_type" and not isinstance(error_at.node, SequenceNode):
        keys = [name for member in sections(error_at.annotation) for name in member.model_fields]
        example = ".".join(map(str, [*error_at.path, *keys[:1]]))
        return (
            f"must be a section, not {describe_value(error_at.node)}: set one of its keys, such as {example}"
        )
    if _KIND_ERROR.fullmatch(kind):
        quotes = (
            " (put it in quotes)" if kind == "string_type" and isinstance(error_at.node, ScalarNode) else ""
        )
        return f"must be {_kind(kind)}, not {describe_value(error_at.node)}{quotes}"
    text = re.sub(r"^\w+ should", "must", error["msg"]).replace(" after validation", "")
    return (
        text[:1].lower()
        + text[1:]
        + (f", not {describe_value(error_at.node)}" if isinstance(error_at.node, ScalarNode) else "")
    )


def wanted_number(error: ErrorDetails) -> str:
    """The kind of number that must stand here, such as `at least 1`; empty for other errors."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in {"finite_number", "int_from_float"}:
        return "a finite number" if kind == "finite_number" else "a whole number"
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        return f"{words} {context.get(name)}"
    return ""


def wrong_option(error: ErrorDetails) -> str:
    """Describe the mistake in the value of an option of a command, which is text."""
    wanted = wanted_number(error)
    if not wanted and _KIND_ERROR.fullmatch(error["type"]):
        wanted = _kind(error["type"])
    return f"must be {wanted}, not {error['input']}" if wanted else str(error["msg"])


def _allowed(error: ErrorDetails) -> list[str]:
    context = error.get("ctx", {})
    listed = str(context.get("expected_tags", context.get("expected", "")))
    return re.findall(r"'([^']*)'", listed) or re.findall(r"\d+", listed)


def _may_be_elsewhere(error_at: _ErrorLocation, error: ErrorDetails) -> bool:
    """Whether it names a choice that is like none of ours, where other packages may add theirs."""
    if error["type"] != "union_tag_invalid" or _close(str(_type_of(error_at.node)), _allowed(error)):
        return False
    return any(issubclass(section, Choice) for section in sections(error_at.annotation))


def _one_of(choices: Sequence[str]) -> str:
    if len(choices) < 2:
        return "".join(choices)
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def _close(word: str, choices: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, choices, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


@cache
def _described(section: type[Section]) -> dict[str, str]:
    return dict(described_keys(section))


def _other_key(error_at: _ErrorLocation, section: type[Section]) -> str:
    """The key that was meant: a similar one beside it, or the same elsewhere; else all known here."""
    meant = _meant(error_at, _described(section))
    if meant:
        return f" (did you mean {meant}?)"
    return f" (known: {', '.join(error_at.beside)})" if error_at.beside else ""


def _meant(error_at: _ErrorLocation, keys: Mapping[str, str]) -> str:
    *parents, word = (str(part) for part in error_at.path)
    written = ".".join([*parents, word])  # another member of the union may know the very same key
    for depth in range(len(parents) - 1, -1, -1):  # of a section around this one
        if (around := ".".join([*parents[:depth], word])) in keys:
            return around if depth else f"{word}, outside of {parents[0]}"
    close = difflib.get_close_matches(word, error_at.beside, n=1, cutoff=_NEAR)
    if close:
        return ".".join([*parents, *close])
    elsewhere = [path for path in keys if path != written and path.rpartition(".")[2] == word]
    own = [path for path in elsewhere if path.split(".")[0] in parents[:1]] or elsewhere
    nearest = [path for path in own if path.count(".") == min(each.count(".") for each in own)]
    return " or ".join(nearest) if len(nearest) <= 2 else ""
