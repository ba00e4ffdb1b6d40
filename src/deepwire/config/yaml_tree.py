"""YAML text as a tree of plain values that know where they were written.

The tree is built from parser events and no constructor of the YAML library runs, so no tag creates an object.
Scalars follow the YAML 1.2 core schema (``no`` is the language Norwegian, not false; ``1e-4`` is a number).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import yaml

from deepwire.errors import UsageError

PlainValue: TypeAlias = "str | int | float | bool | list[PlainValue] | dict[str, PlainValue] | None"

MAX_DEPTH = 40
MAX_VALUES = 20_000
_MOST_PROBLEMS = 50
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]{0,40}")
_OTHER_BASE = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
# The parser in C takes a fifth of the time. What it refuses, the one in Python reads again, for its messages;
# and so it does with tabs, of which they take different ones.
_QUICK = getattr(yaml, "CSafeLoader", None)
_REFERENCE = re.compile(r"\$\{([^}]*)\}?")


@dataclass(frozen=True)
class SourceLocation:
    """Where a value was written, and the folder that its relative paths start from; no line: command line."""

    file: str
    line: int | None
    folder: Path

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class ScalarNode:
    """A text, number, truth value or nothing."""

    value: str | int | float | bool | None
    location: SourceLocation


@dataclass(frozen=True)
class SequenceNode:
    """A list."""

    items: list[Node]
    location: SourceLocation


@dataclass(frozen=True)
class MappingNode:
    """A mapping; the location of an entry is the line of its key."""

    entries: dict[str, Node]
    location: SourceLocation


Node: TypeAlias = ScalarNode | SequenceNode | MappingNode


@dataclass
class Problems:
    """Mistakes so far, one line each; raised together so that one run shows everything."""

    lines: list[str] = field(default_factory=list)
    more: int = 0
    """Mistakes that nobody needs to hear of as well."""
    hint: str = ""
    """What helps with one of them; shown where `raise_if_any` is given no other."""

    def add(self, location: SourceLocation, text: str) -> None:
        """Note that ``text`` is wrong at ``location``."""
        self.lines.append(f"{location}: {text}".replace("\n", "\\n"))

    def raise_if_any(self, hint: str = "") -> None:
        """Raise one UsageError with every line noted, or do nothing."""
        if self.lines:
            more = self.more + len(self.lines) - _MOST_PROBLEMS
            rest = [f"and {more:,} more mistakes"] if more > 0 else []
            raise UsageError("\n".join([*self.lines[:_MOST_PROBLEMS], *rest]), hint or self.hint)


def parse_yaml(
    text: str, location: SourceLocation, problems: Problems, path: tuple[str, ...] = ()
) -> Node | None:
    """Parse one YAML document; None if it holds nothing but blanks and comments.

    Duplicate keys and unset environment variables are noted in ``problems``; reading goes on. Lines are
    counted from 1, or left out where ``location`` has none. ``path`` is the key whose value it is.

    Raises:
        UsageError: If the text is not YAML, uses tags, anchors or several documents, or is absurdly deep or
            large.
    """
    if _QUICK is not None and "\t" not in text:
        noted = len(problems.lines)
        try:
            return _Builder(text, location, problems, path).document(_QUICK)
        except (yaml.YAMLError, UnicodeEncodeError):
            del problems.lines[noted:]
    return _Builder(text, location, problems, path).in_python()


def plain(node: Node) -> PlainValue:
    """The value without the locations."""
    if isinstance(node, MappingNode):
        return {key: plain(value) for key, value in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.items]
    return node.value


def node_at(root: Node, path: Sequence[str | int]) -> Node | None:
    """The node written at ``path``, or the plain text that stands for the section it is in, or None."""
    node = root
    for part in path:
        if isinstance(node, ScalarNode):
            break
        if isinstance(node, MappingNode):
            # A list of one may be written without the list; its index is no step down then.
            below = node.entries.get(part) if isinstance(part, str) else node
        elif isinstance(part, int):
            below = node.items[part] if part < len(node.items) else None
        else:
            below = node  # a list that stands for the section whose list it is
        if below is None:
            return None
        node = below
    return node


def resolve_scalar(text: str) -> str | int | float | bool | None:
    """The meaning of an unquoted scalar in the YAML 1.2 core schema (plus ``_`` between digits)."""
    if text in {"", "~", "null", "Null", "NULL"}:
        return None
    if text in {"true", "True", "TRUE", "false", "False", "FALSE"}:
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", "", 1))
    return text


def _code(character: int | str | bytes) -> int:
    return character if isinstance(character, int) else ord(character)


class _Builder:
    """Turns the events of one YAML text into a tree."""

    def __init__(
        self, text: str, location: SourceLocation, problems: Problems, path: tuple[str, ...]
    ) -> None:
        self._text = text
        self._location = location
        self._problems = problems
        self._path = path
        self._values = 0

    def in_python(self) -> Node | None:
        """The tree of the text, with a `UsageError` where it is not YAML."""
        try:
            return self.document(yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error) from None
        except yaml.reader.ReaderError as error:
            line = self._text.count("\n", 0, error.position) + 1
            raise UsageError(
                f"{self._named(self._at(line))}: character U+{_code(error.character):04X} is not allowed"
            ) from None

    def document(self, loader: type[yaml.SafeLoader]) -> Node | None:
        """The tree of the text, with the parser's error where it is not YAML."""
        events = iter(yaml.parse(self._text, Loader=loader))
        next(events)  # stream start
        if isinstance(next(events), yaml.StreamEndEvent):
            return None
        node = self._node(next(events), events, self._path, 0)
        next(events)  # document end
        follower = next(events)
        if not isinstance(follower, yaml.StreamEndEvent):
            raise self._error(follower, "a second document ('---') begins here; a run file is one document")
        # "key: value" files whose only content is a comment still yield one empty scalar.
        return None if isinstance(node, ScalarNode) and node.value is None else node

    def _at(self, line: int) -> SourceLocation:
        return self._location if self._location.line is None else replace(self._location, line=line)

    def _where(self, event: yaml.Event) -> SourceLocation:
        return self._at(event.start_mark.line + 1) if event.start_mark is not None else self._location

    def _error(self, event: yaml.Event, text: str, hint: str = "") -> UsageError:
        return UsageError(f"{self._named(self._where(event))}: {text}", hint)

    def _named(self, at: SourceLocation) -> str:
        return ": ".join([str(at), *([".".join(self._path)] if self._path else [])])

    def _syntax(self, error: yaml.MarkedYAMLError) -> UsageError:
        mark = error.problem_mark or error.context_mark
        at = self._named(self._at(mark.line + 1) if mark is not None else self._location)
        problem = error.problem or "not valid YAML"
        if "'\\t'" in problem:
            return UsageError(f"{at}: a tab is used where YAML needs spaces", "replace the tab by spaces")
        alias = "alias" in (error.context or "")
        hint = "put text that begins with * between quotes, such as '*embedding*'" if alias else ""
        return UsageError(f"{at}: not valid YAML: {problem}", hint)

    def _node(
        self, event: yaml.Event, events: Iterator[yaml.Event], path: tuple[str, ...], depth: int
    ) -> Node:
        self._values += 1
        if self._values > MAX_VALUES:
            raise self._error(event, f"more than {MAX_VALUES:,} values, so hardly a run file")
        if depth > MAX_DEPTH:
            raise self._error(event, f"nested more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self._error(
                event, "anchors and aliases (& and *) are not supported", "share settings with 'extends'"
            )
        if getattr(event, "tag", None) is not None:
            raise self._error(
                event,
                f"tags ({str(getattr(event, 'tag', ''))[:60]}) are not supported",
                "write the plain value",
            )
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._items(event, events, path, depth)
        return self._keys(event, events, path, depth)

    def _scalar(self, event: yaml.ScalarEvent, path: tuple[str, ...]) -> ScalarNode:
        location = self._where(event)

        def value_of(match: re.Match[str]) -> str:
            name = match[1]
            if not name.startswith("env:") or not match[0].endswith("}"):
                self._problems.add(
                    location, f"{'.'.join(path)}: {match[0]} is not understood; write ${{env:NAME}}"
                )
                return ""
            value = os.environ.get(name.removeprefix("env:"))
            if value is None:
                self._problems.add(
                    location, f"{'.'.join(path)}: the environment variable {name[4:]} is not set"
                )
            return value or ""

        text = _REFERENCE.sub(value_of, event.value)
        if "\0" in text:
            self._problems.add(location, f"{'.'.join(path)}: holds the character U+0000")
        return ScalarNode(text if event.style else resolve_scalar(text), location)

    def _items(
        self, start: yaml.Event, events: Iterator[yaml.Event], path: tuple[str, ...], depth: int
    ) -> SequenceNode:
        items: list[Node] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self._node(event, events, (*path, str(len(items))), depth + 1))
        return SequenceNode(items, self._where(start))

    def _keys(
        self, start: yaml.Event, events: Iterator[yaml.Event], path: tuple[str, ...], depth: int
    ) -> MappingNode:
        entries: dict[str, Node] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None or event.anchor is not None:
                raise self._error(event, "a key must be a plain word")
            key, location = event.value, self._where(event)
            inner = (*path, key)
            value = replace(self._node(next(events), events, inner, depth + 1), location=location)
            if key in entries:
                first = entries[key].location
                where = f" (first on line {first.line})" if first.line is not None else ""
                self._problems.add(location, f"{'.'.join(inner)}: given twice{where}")
            entries[key] = value
        return MappingNode(entries, self._where(start))
