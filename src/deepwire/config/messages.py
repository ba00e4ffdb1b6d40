"""Turns what pydantic reports into lines for a person: file and line, key, what is wrong, what is right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_core import ErrorDetails

from deepwire.config.base import Section
from deepwire.config.schema import child, described_keys, sections, tags
from deepwire.config.tree import MappingNode, Node, Origin, Problems, Scalar, SequenceNode

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


@dataclass(frozen=True)
class _Place:
    """Where an error of pydantic belongs in the run file."""

    path: tuple[str | int, ...]
    origin: Origin
    node: Node | None
    annotation: object | None
    beside: tuple[str, ...]
    """The keys that may stand beside the last key of the path."""
    member: tuple[int, str] | None
    """(length of the path, name) of the first union member that pydantic tried; not a key of the run file."""


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
    placed = [(_place(error, root, section), error) for error in errors]
    lines: dict[tuple[Origin, str], None] = {}
    for place, text in _merge_unions(placed, section):
        name = ".".join(str(part) for part in place.path)
        lines[place.origin, f"{name}: {text}" if name else text] = None
    for origin, text in sorted(lines, key=lambda entry: entry[0].line or 0):
        problems.add(origin, text)


def shown(node: Node | None) -> str:
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


def _place(error: ErrorDetails, root: MappingNode, section: type[Section]) -> _Place:
    """Follow the location of a pydantic error through the tree, leaving out the names of union members."""
    path: tuple[str | int, ...] = ()
    node: Node | None = root
    origin, annotation = root.origin, section
    here: object | None = annotation
    member: tuple[int, str] | None = None
    beside: dict[str, None] = {}
    for part in error["loc"]:
        tag = _type_of(node)
        if isinstance(part, str) and (part == tag or _is_tag(part, here)) and not _holds(node, part):
            here = _narrow(here, part)
            continue
        below = child(here, part, tag)
        if isinstance(part, str) and below is None and not _holds(node, part) and error["type"] != "missing":
            member = member or (len(path), part)
            continue
        if isinstance(part, int) and not isinstance(node, SequenceNode):
            here = below  # a single value that stands for a list of one
            continue
        beside = dict.fromkeys(name for s in sections(here) for name in s.model_fields)
        path, here = (*path, part), below
        node = _below(node, part)
        origin = node.origin if node is not None else origin
    if error["type"] == "value_error" and isinstance(node, MappingNode):
        origin = _named_in(str(error["msg"]), node) or origin
    return _Place(path, origin, node, here, tuple(beside), member)


def _named_in(message: str, node: MappingNode) -> Origin | None:
    """Where the keys that a section's message names were written; the command line comes first."""
    origins = [node.entries[word].origin for word in re.findall(r"\w+", message) if word in node.entries]
    return next((origin for origin in origins if origin.line is None), origins[0] if origins else None)


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
    return chosen.value if isinstance(chosen, Scalar) else None


def _is_tag(part: str, annotation: object | None) -> bool:
    return any(part in tags(section) for section in sections(annotation))


def _narrow(annotation: object | None, tag: str) -> object | None:
    return next((section for section in sections(annotation) if tag in tags(section)), annotation)


def _merge_unions(
    placed: list[tuple[_Place, ErrorDetails]], section: type[Section]
) -> list[tuple[_Place, str]]:
    """One set of errors per value: of the members of a union, only what the nearest one found wrong."""
    lines: list[tuple[_Place, str]] = []
    unions: dict[tuple[str | int, ...], dict[str, list[tuple[_Place, ErrorDetails]]]] = {}
    for place, error in placed:
        if place.member is None:
            lines.append((place, _text(place, error, section)))
        else:
            members = unions.setdefault(place.path[: place.member[0]], {})
            members.setdefault(place.member[1], []).append((place, error))
    for path, members in unions.items():
        fitting = {
            name: found
            for name, found in members.items()
            if not all(place.path == path and _KIND_ERROR.fullmatch(error["type"]) for place, error in found)
        }
        if fitting:
            nearest = min(fitting.values(), key=len)
            lines.extend((place, _text(place, error, section)) for place, error in nearest)
            continue
        place = next(iter(members.values()))[0][0]
        kinds = dict.fromkeys(_kind(error["type"]) for found in members.values() for _, error in found)
        lines.append((place, f"must be {' or '.join(kinds)}, not {shown(place.node)}"))
    return lines


def _kind(error_type: str) -> str:
    match = _KIND_ERROR.fullmatch(error_type)
    return _KINDS[match[1]] if match else "something else"


def _text(place: _Place, error: ErrorDetails, section: type[Section]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key{_other_key(place, section)}"
    if kind == "missing":
        return "is missing and has no default"
    if kind in {"union_tag_invalid", "literal_error", "enum"}:
        choices = re.findall(r"'([^']*)'", str(context.get("expected_tags", context.get("expected", ""))))
        given = (
            _type_of(place.node)
            if isinstance(place.node, MappingNode)
            else getattr(place.node, "value", None)
        )
        return f"must be {_one_of(choices)}, not {given!r}{_close(str(given), choices)}"
    choices = [tag for s in sections(place.annotation) for tag in tags(s)]
    if kind == "union_tag_not_found" or (choices and _KIND_ERROR.fullmatch(kind)):
        if isinstance(place.node, MappingNode):
            return f"needs a key type: {_one_of(choices)}"
        return f"must be {_one_of(choices)}, not {shown(place.node)}"
    if kind == "finite_number":
        return f"must be a finite number, not {shown(place.node)}"
    if kind == "int_from_float":
        return f"must be a whole number, not {shown(place.node)}"
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        return f"must be {words} {context.get(name)}, not {shown(place.node)}"
    if kind == "too_short" and isinstance(place.node, SequenceNode):
        least = "an entry" if context["min_length"] == 1 else f"{context['min_length']} entries"
        return f"must have at least {least}, not {len(place.node.items)}"
    if kind in {"value_error", "assertion_error"}:
        return str(context.get("error", error["msg"]))
    if _KIND_ERROR.fullmatch(kind):
        quotes = " (put it in quotes)" if kind == "string_type" and isinstance(place.node, Scalar) else ""
        return f"must be {_kind(kind)}, not {shown(place.node)}{quotes}"
    text = re.sub(r"^\w+ should", "must", error["msg"]).replace(" after validation", "")
    return (
        text[:1].lower() + text[1:] + (f", not {shown(place.node)}" if isinstance(place.node, Scalar) else "")
    )


def _one_of(choices: Sequence[str]) -> str:
    if len(choices) < 2:
        return "".join(choices)
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def _close(word: str, choices: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, choices, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _other_key(place: _Place, section: type[Section]) -> str:
    """A similar key beside the unknown one, else one elsewhere, else the keys known here."""
    *parents, word = (str(part) for part in place.path)
    close = difflib.get_close_matches(word, place.beside, n=1)
    if close:
        return f" (did you mean {'.'.join([*parents, close[0]])}?)"
    own = ".".join([*parents, word])  # another member of the union may know the very same key
    keys = [(path, about) for path, about in described_keys(section) if path != own]
    everywhere = {path.rpartition(".")[2]: path for path, _ in reversed(keys)}
    # A word that stands elsewhere must fit well: a far guess confuses more than the list of what fits here.
    far = [everywhere[name] for name in difflib.get_close_matches(word, list(everywhere), n=1, cutoff=0.85)]
    # A key may have another name here: learning_rate is what the description of schedule begins with.
    far += [
        path for path, about in keys if len(word) > 3 and about.lower().startswith(word.replace("_", " "))
    ]
    if far:
        return f" (did you mean {far[0]}?)"
    return f" (known: {', '.join(place.beside)})" if place.beside else ""
