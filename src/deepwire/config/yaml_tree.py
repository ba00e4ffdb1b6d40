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
NodeValue: TypeAlias = "str | int | float | bool | list[Node] | dict[str, Node] | None"

MAX_DEPTH = 40
MAX_VALUES = 20_000
_MAX_PROBLEMS = 50
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]{0,40}")
_OTHER_BASE = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
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
class Node:
    """A value, list or mapping; the location of an entry of a mapping is the line of its key."""

    value: NodeValue
    location: SourceLocation

    def below(self, key: str | int) -> Node | None:
        """The entry of a mapping or item of a list; None where there is none."""
        if isinstance(self.value, dict) and isinstance(key, str):
            return self.value.get(key)
        if isinstance(self.value, list) and isinstance(key, int) and 0 <= key < len(self.value):
            return self.value[key]
        return None

    @property
    def type(self) -> object:
        """The name that chooses a section: its ``type``, or a plain value itself; None for none."""
        chosen = self.below("type") if isinstance(self.value, dict) else self
        return None if chosen is None or isinstance(chosen.value, list | dict) else chosen.value


@dataclass
class Problems:
    """Mistakes so far, one line each; raised together so that one run shows everything."""

    lines: list[str] = field(default_factory=list)
    more: int = 0
    """How many further mistakes are counted, not shown."""

    def add(self, location: SourceLocation, text: str) -> None:
        """Note that ``text`` is wrong at ``location``."""
        self.lines.append(f"{location}: {text}".replace("\n", "\\n"))

    def raise_if_any(self, hint: str = "") -> None:
        """Raise one UsageError with every line noted, or do nothing."""
        if self.lines:
            more = self.more + len(self.lines) - _MAX_PROBLEMS
            rest = [f"and {more:,} more mistakes"] if more > 0 else []
            raise UsageError("\n".join([*self.lines[:_MAX_PROBLEMS], *rest]), hint)


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
    builder = _Builder(location, problems, path)
    try:
        return builder.document(text)
    except yaml.MarkedYAMLError as error:
        raise builder.syntax_error(error) from None
    except yaml.reader.ReaderError as error:
        code = error.character if isinstance(error.character, int) else ord(error.character)
        line = text.count("\n", 0, error.position)
        raise builder.error(line, f"character U+{code:04X} is not allowed") from None


def plain(node: Node) -> PlainValue:
    """The value without the locations."""
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def node_at(root: Node, path: Sequence[str | int]) -> Node | None:
    """The node written at ``path``, or the plain value that stands for the section it is in, or None."""
    node = root
    for part in path:
        if not isinstance(node.value, list | dict):
            break
        # A list of one may be written without the list, and a list may stand for the section that has it.
        if isinstance(node.value, dict) == isinstance(part, str):
            below = node.below(part)
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


def _line_of(event: yaml.Event) -> int:
    return 0 if event.start_mark is None else event.start_mark.line


class _Builder:
    """Turns the events of one YAML text into a tree."""

    def __init__(self, location: SourceLocation, problems: Problems, path: tuple[str, ...]) -> None:
        self._location, self._problems, self._path = location, problems, path
        self._values = 0

    def document(self, text: str) -> Node | None:
        """The tree of the text, with the parser's error where it is not YAML."""
        events = iter(yaml.parse(text, Loader=yaml.SafeLoader))
        next(events)  # stream start
        if isinstance(next(events), yaml.StreamEndEvent):
            return None
        node = self._node(next(events), events, self._path, 0)
        next(events)  # document end
        follower = next(events)
        if not isinstance(follower, yaml.StreamEndEvent):
            raise self._error(follower, "a second document ('---') begins here; a run file is one document")
        return None if node.value is None else node  # a text of comments alone has an empty scalar

    def error(self, line: int, text: str, hint: str = "") -> UsageError:
        """An error in a line, counted from 0."""
        return UsageError(": ".join(filter(None, (str(self._at(line)), ".".join(self._path), text))), hint)

    def syntax_error(self, error: yaml.MarkedYAMLError) -> UsageError:
        mark = error.problem_mark or error.context_mark
        line, problem = 0 if mark is None else mark.line, error.problem or "not valid YAML"
        if "'\\t'" in problem:
            return self.error(line, "a tab is used where YAML needs spaces", "replace the tab by spaces")
        alias = "alias" in (error.context or "")
        hint = "put text that begins with * between quotes, such as '*embedding*'" if alias else ""
        return self.error(line, f"not valid YAML: {problem}", hint)

    def _at(self, line: int) -> SourceLocation:
        return self._location if self._location.line is None else replace(self._location, line=line + 1)

    def _where(self, event: yaml.Event) -> SourceLocation:
        return self._at(_line_of(event))

    def _error(self, event: yaml.Event, text: str, hint: str = "") -> UsageError:
        return self.error(_line_of(event), text, hint)

    def _node(
        self, event: yaml.Event, events: Iterator[yaml.Event], path: tuple[str, ...], depth: int
    ) -> Node:
        self._values += 1
        if self._values > MAX_VALUES:
            raise self._error(event, f"more than {MAX_VALUES:,} values, so hardly a run file")
        if depth > MAX_DEPTH:
            raise self._error(event, f"nested more than {MAX_DEPTH} deep")
        if getattr(event, "anchor", None) is not None:  # an alias has one, too
            text = "anchors and aliases (& and *) are not supported"
            raise self._error(event, text, "share settings with 'extends'")
        if (tag := getattr(event, "tag", None)) is not None:
            raise self._error(event, f"tags ({str(tag)[:60]}) are not supported", "write the plain value")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(inner := next(events), yaml.SequenceEndEvent):
                items.append(self._node(inner, events, (*path, str(len(items))), depth + 1))
            return Node(items, self._where(event))
        return self._mapping(event, events, path, depth)

    def _scalar(self, event: yaml.ScalarEvent, path: tuple[str, ...]) -> Node:
        location, key = self._where(event), ".".join(path)

        def value_of(match: re.Match[str]) -> str:
            kind, _, name = match[1].partition(":")
            if kind != "env" or not match[0].endswith("}"):
                self._problems.add(location, f"{key}: {match[0]} is not understood; write ${{env:NAME}}")
            elif name not in os.environ:
                self._problems.add(location, f"{key}: the environment variable {name} is not set")
            return os.environ.get(name, "")

        text = _REFERENCE.sub(value_of, event.value)
        if "\0" in text:
            self._problems.add(location, f"{key}: holds the character U+0000")
        return Node(text if event.style else resolve_scalar(text), location)

    def _mapping(
        self, start: yaml.Event, events: Iterator[yaml.Event], path: tuple[str, ...], depth: int
    ) -> Node:
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
        return Node(entries, self._where(start))
