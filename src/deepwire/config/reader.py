"""Run files: read, extend, override, check. Every mistake is reported at once, with file and line."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from deepwire.config.base import Section
from deepwire.config.choice import TRUSTED
from deepwire.config.effect import idle_settings
from deepwire.config.messages import note_errors, shown
from deepwire.config.schema import alternatives, child, chosen_by_type, sections
from deepwire.config.tree import Items, Keys, Node, Origin, Problems, Scalar, node_at, parse_yaml, plain
from deepwire.errors import UsageError

SectionType = TypeVar("SectionType", bound=Section)

MAX_BYTES = 4 * 1024 * 1024
COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Document:
    """A file to read: where it is, what messages call it, and the folder its relative paths start from."""

    path: Path
    label: str
    folder: Path


Locate = Callable[[str, Document | None], Document]
"""Finds the file or recipe that a name stands for; the second argument is the file that names it."""


@dataclass(frozen=True)
class Settings(Generic[SectionType]):
    """A checked run file."""

    section: SectionType
    tree: Keys
    document: Document
    text: str
    """The file as it was read."""

    def written(self, path: Sequence[str | int]) -> Origin | None:
        """Where the value at ``path`` (or the text that stands for it) was written; None for a default."""
        node = node_at(self.tree, path)
        return node.origin if isinstance(node, Scalar) else None

    def origins(self) -> dict[str, str]:
        """``file:line`` or ``command line`` of every written value, by dotted key."""
        found: dict[str, str] = {}

        def visit(node: Node, path: str) -> None:
            if isinstance(node, Keys):
                for key, value in node.entries.items():
                    visit(value, f"{path}.{key}" if path else key)
            else:
                found[path] = str(node.origin)

        visit(self.tree, "")
        return found


def read_settings(
    section: type[SectionType],
    name: str,
    overrides: Sequence[str] = (),
    *,
    locate: Locate,
    own_keys: frozenset[str] = frozenset(),
) -> Settings[SectionType]:
    """Read a run file with what it extends, apply overrides, and check it against ``section``.

    Args:
        section: The class of the whole file.
        name: Path or recipe, as ``locate`` understands it.
        overrides: ``key.sub=value``; later ones win. The value is YAML.
        locate: Finds the file behind a name.
        own_keys: Top-level keys that a file does not take over from what it extends.

    Raises:
        UsageError: If a file cannot be read or anything in it is wrong; the message has one line per mistake.
    """
    problems = Problems()
    document = locate(name, None)
    text = _text(document)
    tree = _extended(section, document, _parsed(document, text, problems), locate, own_keys, problems, ())
    # Put together first: which of them comes first must not decide whether a size survives a new type.
    changes = Keys({}, Origin(COMMAND_LINE, None, Path.cwd()))
    for override in overrides:
        changes = _overridden(changes, override, section, problems)
    merged = merge(tree, changes, section)
    whole = replace(merged, origin=tree.origin) if isinstance(merged, Keys) else tree
    problems.raise_if_any()
    built = check(section, whole)
    _refuse_idle(built, whole, tree, document)
    return Settings(built, whole, document, text)


def _refuse_idle(built: Section, tree: Keys, file: Keys, document: Document) -> None:
    """Refuse settings without effect, but those that only a later file or the command line makes so.

    Args:
        built: What `tree` means: the file `file` with the changes of the command line.
    """
    problems, found = Problems(), idle_settings(built, tree)
    if any(one.origin.file == document.label for one in found.values()):
        try:
            alone = idle_settings(check(type(built), file), file)
        except UsageError:
            alone = {}  # it needs the command line to be a run file at all
    for name, one in found.items():
        if one.origin.file == COMMAND_LINE or (one.origin.file == document.label and name in alone):
            problems.add(one.origin, one.text)
    problems.raise_if_any("leave it out, or change what makes it idle")


def check(section: type[SectionType], tree: Keys) -> SectionType:
    """Build ``section`` from a tree.

    Raises:
        UsageError: With one line for each value that is wrong.
    """
    problems = Problems()
    try:
        built = section.model_validate(plain(_prepared(tree, section)), context=TRUSTED)
    except ValidationError as error:
        note_errors(error.errors(include_url=False), tree, section, problems)
        problems.raise_if_any()
        raise
    return built


def from_mapping(section: type[SectionType], values: object, name: str) -> SectionType:
    """Build ``section`` from plain values given in Python; ``name`` is what errors call them.

    Raises:
        UsageError: With one line for each value that is wrong.
    """
    problems, origin = Problems(), Origin(name, None, Path.cwd())
    tree = parse_yaml(json.dumps(values, default=str), origin, problems)
    if not isinstance(tree, Keys):
        raise UsageError(f"{name}: must be a mapping, not {type(values).__name__}")
    try:
        built = section.model_validate(values, context=TRUSTED)
    except ValidationError as error:
        note_errors(error.errors(include_url=False), tree, section, problems)
        problems.raise_if_any()
        raise
    for one in idle_settings(built, tree).values():
        problems.add(one.origin, one.text)
    problems.raise_if_any()
    return built


def read_document(document: Document, problems: Problems) -> Keys:
    """Read one YAML file whose top level is a mapping.

    Raises:
        UsageError: If it is missing, a directory, not text, empty, or not a mapping.
    """
    return _parsed(document, _text(document), problems)


def _parsed(document: Document, text: str, problems: Problems) -> Keys:
    origin = Origin(document.label, 1, document.folder)
    node = parse_yaml(text, origin, problems)
    if node is None:
        raise UsageError(
            f"{document.label}: is empty", "write at least data, see 'deepwire recipes show demo'"
        )
    if not isinstance(node, Keys):
        raise UsageError(f"{node.origin}: a run file holds keys (like 'data:'), not {_what(node)}")
    return node


def merge(base: Node, later: Node, annotation: object | None) -> Node:
    """What ``later`` makes of ``base``: mappings merge key by key, everything else replaces.

    A mapping of another ``type`` replaces, too. Keys without a ``type`` refine a plain name (``depth_lstm``)
    where the name stands for ``{type: depth_lstm}``.
    """
    if not isinstance(later, Keys):
        return later
    if isinstance(base, Scalar) and isinstance(base.value, str) and chosen_by_type(annotation):
        base = Keys({"type": base}, base.origin)
    if isinstance(base, Items) and later.entries and all(key.isdecimal() for key in later.entries):
        return _merge_items(base, later, annotation)
    if not isinstance(base, Keys):
        return later
    old, new = base.entries.get("type"), later.entries.get("type")
    if isinstance(old, Scalar) and isinstance(new, Scalar) and old.value != new.value:
        return later
    entries = dict(base.entries)
    tag = getattr(new or old, "value", None)
    for key, value in later.entries.items():
        below = child(annotation, key, tag)
        entries[key] = merge(entries[key], value, below) if key in entries else value
    return Keys(entries, later.origin)


def _merge_items(base: Items, later: Keys, annotation: object | None) -> Node:
    items = list(base.items)
    for key, value in later.entries.items():
        index = int(key[:9])
        if index >= len(items):
            raise UsageError(f"{value.origin}: item {key} of a list of {len(items)}; items count from 0")
        items[index] = merge(items[index], value, child(annotation, index))
    return Items(items, base.origin)


def _extended(
    section: type[Section],
    document: Document,
    tree: Keys,
    locate: Locate,
    own_keys: frozenset[str],
    problems: Problems,
    parents: tuple[Path, ...],
) -> Keys:
    """The tree of a file merged onto those of what it extends."""
    extends = tree.entries.pop("extends", None)
    if extends is None:
        return tree
    if not isinstance(extends, Scalar) or not isinstance(extends.value, str) or not extends.value:
        problems.add(extends.origin, f"extends: must be a recipe or the path of a file, not {shown(extends)}")
        return tree
    try:
        base = locate(extends.value, document)
    except UsageError as error:
        raise UsageError(f"{extends.origin}: extends: {error.message}", error.hint) from None
    chain = (*parents, document.path)
    if base.path in chain:
        raise UsageError(f"{extends.origin}: extends: {extends.value} extends itself through this file")
    below = _extended(section, base, read_document(base, problems), locate, own_keys, problems, chain)
    inherited = {key: value for key, value in below.entries.items() if key not in own_keys}
    merged = merge(Keys(inherited, below.origin), tree, section)
    return merged if isinstance(merged, Keys) else tree


def _overridden(changes: Keys, text: str, section: type[Section], problems: Problems) -> Keys:
    """The tree of changes after ``key.sub=value``."""
    origin = changes.origin
    key, equals, value = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        problems.add(origin, f"{text!r} is not key=value, such as model.d_model=256")
        return changes
    if parts == ["extends"]:
        problems.add(origin, "extends: cannot be set here; write it into a run file")
        return changes
    node = parse_yaml(value, origin, problems) or Scalar(None, origin)
    for part in reversed(parts):
        node = Keys({part: node}, origin)
    merged = merge(changes, node, section)
    return merged if isinstance(merged, Keys) else changes


def _prepared(node: Node, annotation: object | None) -> Node:
    """The tree as pydantic shall see it: an empty section means its defaults, and true is not 1."""
    if isinstance(node, Keys):
        tag = getattr(node.entries.get("type"), "value", None)
        below = {key: _prepared(value, child(annotation, key, tag)) for key, value in node.entries.items()}
        return Keys(below, node.origin)
    if isinstance(node, Items):
        inner = child(annotation, 0)
        return Items([_prepared(item, inner) for item in node.items], node.origin)
    kinds = alternatives(annotation)
    if node.value is None and sections(annotation) and type(None) not in kinds:
        return Keys({}, node.origin)
    if isinstance(node.value, bool) and bool not in kinds and (int in kinds or float in kinds):
        return Scalar(str(node.value), node.origin)  # pydantic would count with a truth value
    return node


def _text(document: Document) -> str:
    label = document.label
    try:
        with document.path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{label}: no such file", _near_name(document)) from None
    except IsADirectoryError:
        raise UsageError(
            f"{label}: is a directory, not a run file", "name a .yaml file or a recipe"
        ) from None
    except OSError as error:
        raise UsageError(f"{label}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{label}: is larger than 4 MiB, so hardly a run file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{label}:{line}: is not UTF-8 (byte 0x{data[error.start]:02x})") from None


def _near_name(document: Document) -> str:
    names = [one.name for one in document.path.parent.glob(f"*{document.path.suffix}")]
    near = difflib.get_close_matches(document.path.name, names, n=1)
    return f"did you mean {Path(document.label).with_name(near[0])}?" if near else ""


def _what(node: Node) -> str:
    return "a list" if isinstance(node, Items) else f"only {shown(node)}"


def absolute(path: Path, folder: Path) -> Path:
    """``path`` seen from ``folder``, with ``~`` and ``..`` worked out but links left alone; ``-`` stays."""
    if path == Path("-"):
        return path
    # Not Path.expanduser: that fails for the home of a user who does not exist.
    return Path(os.path.normpath(folder / os.path.expanduser(path)))  # noqa: PTH111
