"""Run files: read, extend, override, check. Every mistake is reported at once, with file and line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from deepwire.config.choice import TRUSTED
from deepwire.config.section import (
    Section,
    alternatives,
    child,
    chosen_by_type,
    default_type,
    sections,
    shorthand_at,
)
from deepwire.config.validation_messages import describe_value, note_errors
from deepwire.config.yaml_tree import Node, PlainValue, Problems, SourceLocation, node_at, parse_yaml, plain
from deepwire.errors import UsageError
from deepwire.io.regular_files import open_regular

SectionType = TypeVar("SectionType", bound=Section)

MAX_BYTES = 4 * 1024 * 1024
COMMAND_LINE = "command line"
"""Name, in messages, of settings that were given to a command."""
ARGUMENT = "argument"
"""Name, in messages, of settings that were given to a function."""
MAPPING = "settings"
"""Name, in messages, of a mapping that stands for a file."""


@dataclass(frozen=True)
class SettingsDocument:
    """A file to read: where it is, what messages call it, and the folder its relative paths start from."""

    path: Path
    label: str
    folder: Path


Locate = Callable[[str, SettingsDocument | None], SettingsDocument]
"""Finds the file or recipe that a name stands for; the second argument is the file that names it."""


@dataclass(frozen=True)
class Settings(Generic[SectionType]):
    """A checked run file."""

    section: SectionType
    tree: Node
    document: SettingsDocument
    text: str
    """The file as it was read; of a mapping all settings that were given, with those that it extends."""

    def location_of(self, path: Sequence[str | int]) -> SourceLocation | None:
        """Where the value at ``path`` (or the text that stands for it) was written; None for a default."""
        node = node_at(self.tree, path)
        return None if node is None or isinstance(node.value, list | dict) else node.location

    def origins(self) -> dict[str, str]:
        """``file:line`` or ``command line`` of every written value, by dotted key."""
        locations: dict[str, str] = {}

        def visit(node: Node, path: str) -> None:
            if isinstance(node.value, dict):
                for key, value in node.value.items():
                    visit(value, f"{path}.{key}" if path else key)
            else:
                locations[path] = str(node.location)

        visit(self.tree, "")
        return locations


def read_settings(
    section: type[SectionType],
    name: str | Mapping[str, object],
    overrides: Sequence[str] = (),
    *,
    locate: Locate,
    own_keys: frozenset[str] = frozenset(),
    arguments: Mapping[str, object] | None = None,
    trusted: bool = False,
) -> Settings[SectionType]:
    """Read a run file with what it extends, apply overrides, and check it against ``section``.

    Args:
        section: The class of the whole file.
        name: Path or recipe, as ``locate`` understands it; or a mapping with what a file would hold.
        overrides: ``key.sub=value``; later ones win. The value is YAML.
        locate: Finds the file behind a name.
        own_keys: Top-level keys that a file does not take over from what it extends.
        arguments: Overrides as plain values, by section.
        trusted: Whether names in the file may import other packages; those in a mapping may.

    Raises:
        UsageError: If a file cannot be read or anything in it is wrong; the message has one line per mistake.
    """
    problems = Problems()
    if isinstance(name, str):
        document = locate(name, None)
        text = _text(document)
        written = _parsed(document, text, problems)
    else:
        document, text = SettingsDocument(Path.cwd() / MAPPING, MAPPING, Path.cwd()), ""
        written = _tree_of(name, MAPPING, problems)
    tree = _extended(section, document, written, locate, own_keys, problems, ())
    # Merged with each other first: a new type must not drop sizes that stand before it on the command line.
    typed = [(COMMAND_LINE, text) for text in overrides]
    changes = tree_of_overrides(section, typed, problems, "model.d_model=256")
    if arguments:
        changes = merge(changes, _arguments(arguments, problems), section)
    whole = replace(merge(tree, changes, section, whole=True), location=tree.location)
    if not isinstance(name, str):
        text = json_of(plain(whole), indent=2)
    problems.raise_if_any()
    built = check(section, whole, trusted=trusted or not isinstance(name, str))
    _refuse_unused(built, whole, tree, document)
    return Settings(built, whole, document, text)


def _refuse_unused(built: Section, tree: Node, file: Node, document: SettingsDocument) -> None:
    """Refuse settings without effect that the command line gives, or the file where they never have one."""
    problems, unused = Problems(), find_unused_settings(built, tree)
    if any(setting.location.file == document.label for setting in unused.values()):
        try:
            alone = find_unused_settings(check(type(built), file), file)
        except UsageError:
            alone = {}  # it needs the command line to be a run file at all
    for name, setting in unused.items():
        file_of_setting = setting.location.file
        if file_of_setting in (COMMAND_LINE, ARGUMENT) or (
            file_of_setting == document.label and name in alone
        ):
            problems.add(setting.location, setting.text)
    problems.raise_if_any("leave it out, or change the setting that leaves it without effect")


def check(section: type[SectionType], tree: Node, *, trusted: bool = False) -> SectionType:
    """Build ``section`` from a tree; names in it may import other packages if it is trusted.

    Raises:
        UsageError: With one line for each value that is wrong.
    """
    problems = Problems()
    try:
        built = section.model_validate(plain(_for_pydantic(tree, section)), context={"trusted": trusted})
    except ValidationError as error:
        raise _usage_error(error, tree, section, problems) from None
    return built


def _usage_error(error: ValidationError, tree: Node, section: type[Section], problems: Problems) -> Exception:
    """A UsageError with a line for each mistake, or pydantic's error where there is nothing to add."""
    note_errors(error.errors(include_url=False), tree, section, problems)
    try:
        problems.raise_if_any()
    except UsageError as usage_error:
        return usage_error
    return error


def from_mapping(
    section: type[SectionType], values: object, name: str, *, allow_unused: bool = False
) -> SectionType:
    """Build ``section`` from plain values given in Python.

    Args:
        section: What they are to be.
        values: A mapping.
        name: What errors call it.
        allow_unused: Whether some may have no effect.

    Raises:
        UsageError: With one line for each value that is wrong.
    """
    problems = Problems()
    tree = _tree_of(values, name, problems)
    try:
        built = section.model_validate(_plain_numbers(values, section), context=TRUSTED)
    except ValidationError as error:
        raise _usage_error(error, tree, section, problems) from None
    for unused in () if allow_unused else find_unused_settings(built, tree).values():
        problems.add(unused.location, unused.text)
    problems.raise_if_any()
    return built


def read_overrides(
    section: type[Section],
    overrides: Sequence[str],
    options: Mapping[str, str] | None = None,
    *,
    place: str = COMMAND_LINE,
    example: str = "min_length=2",
) -> dict[str, object]:
    """Read settings of a command that change those of a section, as far as they can be checked alone.

    Args:
        section: What they are settings of.
        overrides: ``key.sub=value``; later ones win.
        options: The same of options, by the names that messages call them; an empty one was not given.
        place: What messages call the place of the others.
        example: A right setting, for messages.

    Returns:
        Plain values by key.

    Raises:
        UsageError: With one line for each that is wrong.
    """
    problems = Problems()
    given = {option: text for option, text in (options or {}).items() if text}
    texts = [*given.items(), *((place, text) for text in overrides)]
    tree = tree_of_overrides(section, texts, problems, example)
    problems.raise_if_any()
    try:
        section.model_validate(plain(tree))
    except ValidationError as error:
        # What does not fit together may fit with the settings that these change.
        errors = [each for each in error.errors(include_url=False) if each["loc"]]
        note_errors(errors, tree, section, problems)
    for option, text in given.items():
        key = text.partition("=")[0]
        problems.lines = [line.replace(f"{option}: {key}: ", f"{option}: ") for line in problems.lines]
    problems.raise_if_any()
    return {key: plain(value) for key, value in _entries(tree).items()}


def json_of(values: object, *, indent: int | None = None) -> str:
    """Values given in Python as JSON, and so as YAML: sections as mappings, paths and the like as text."""
    return json.dumps(values, default=_plain_value, ensure_ascii=False, indent=indent)


def _plain_value(value: object) -> object:
    if isinstance(value, Section):
        return value.model_dump(mode="json")
    number = _plain_number(value)
    return str(value) if number is value else number


def _plain_number(value: object) -> object:
    """A number of numpy or torch as Python's own; everything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _plain_numbers(values: object, annotation: object | None) -> object:
    """Settings with numbers of numpy as Python's own; true in the place of a number is text."""
    if isinstance(values, Mapping):
        tag = values.get("type")
        return {key: _plain_numbers(value, child(annotation, key, tag)) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_plain_numbers(value, child(annotation, 0)) for value in values]
    number = _plain_number(values)
    return str(number) if _is_bool_for_number(number, annotation) else number


def _tree_of(values: object, label: str, problems: Problems) -> Node:
    """The tree of plain values; ``label`` is what errors call them."""
    if not isinstance(values, Mapping):
        raise UsageError(f"{label}: must be a mapping, not {type(values).__name__}")
    try:
        tree = parse_yaml(json_of(dict(values)), SourceLocation(label, None, Path.cwd()), problems)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{label}: not plain values: {error}") from None
    return tree or Node({}, SourceLocation(label, None, Path.cwd()))


def _arguments(arguments: Mapping[str, object], problems: Problems) -> Node:
    tree = _tree_of(arguments, ARGUMENT, problems)
    kept: dict[str, Node] = {}
    for key, node in _entries(tree).items():
        if key == "extends":
            problems.add(tree.location, "extends: cannot be set here; write it into the settings")
        elif "." in key:
            first, *parts = key.split(".")
            told = f"{first}=" + "".join(f'{{"{part}": ' for part in parts)
            problems.add(tree.location, f"{key}: write {told}...{'}' * len(parts)}")
        else:
            kept[key] = node
    return Node(kept, tree.location)


def _entries(node: Node) -> dict[str, Node]:
    assert isinstance(node.value, dict)
    return node.value


def read_document(document: SettingsDocument, problems: Problems) -> Node:
    """Read one YAML file whose top level is a mapping.

    Raises:
        UsageError: If it is missing, a directory, not text, empty, or not a mapping.
    """
    return _parsed(document, _text(document), problems)


def _parsed(document: SettingsDocument, text: str, problems: Problems) -> Node:
    location = SourceLocation(document.label, 1, document.folder)
    node = parse_yaml(text, location, problems)
    if node is None:
        raise UsageError(
            f"{document.label}: is empty", "write at least data, see 'deepwire recipes show demo'"
        )
    if not isinstance(node.value, dict):
        said = describe_value(node) if isinstance(node.value, list) else f"only {describe_value(node)}"
        raise UsageError(f"{node.location}: a run file holds keys (like 'data:'), not {said}")
    return node


def _extended(
    section: type[Section],
    document: SettingsDocument,
    tree: Node,
    locate: Locate,
    own_keys: frozenset[str],
    problems: Problems,
    parents: tuple[Path, ...],
) -> Node:
    """The tree of a file merged onto those of what it extends."""
    own = {key: value for key, value in _entries(tree).items() if key != "extends"}
    extends, tree = tree.below("extends"), Node(own, tree.location)
    if extends is None:
        return tree
    if not isinstance(extends.value, str) or not extends.value:
        said = f"extends: must be a recipe or the path of a file, not {describe_value(extends)}"
        problems.add(extends.location, said)
        return tree
    try:
        base = locate(extends.value, document)
        text = _text(base)
    except UsageError as error:
        raise UsageError(f"{extends.location}: extends: {error.message}", error.hint) from None
    chain = (*parents, document.path)
    if base.path in chain:
        raise UsageError(f"{extends.location}: extends: {extends.value} extends itself through this file")
    below = _extended(section, base, _parsed(base, text, problems), locate, own_keys, problems, chain)
    inherited = {key: value for key, value in _entries(below).items() if key not in own_keys}
    return merge(Node(inherited, below.location), tree, section, whole=True)


def _for_pydantic(node: Node, annotation: object | None) -> Node:
    """The tree to validate: an empty section is a mapping, and true in the place of a number is text."""
    value = node.value
    if isinstance(value, dict):
        below = {key: _for_pydantic(inner, child(annotation, key, node.type)) for key, inner in value.items()}
        return Node(below, node.location)
    if isinstance(value, list):
        return Node([_for_pydantic(item, child(annotation, 0)) for item in value], node.location)
    if is_empty_section(node, annotation):
        return Node({}, node.location)
    return Node(str(value), node.location) if _is_bool_for_number(value, annotation) else node


def _is_bool_for_number(value: object, annotation: object | None) -> bool:
    """Whether it is true or false in the place of a number, which pydantic would take for 1 or 0."""
    kinds = alternatives(annotation)
    return isinstance(value, bool) and bool not in kinds and (int in kinds or float in kinds)


def _text(document: SettingsDocument) -> str:
    label = document.label
    try:
        with open_regular(document.path) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{label}: {(error.strerror or str(error)).lower()}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{label}: is larger than 4 MiB, so hardly a run file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{label}:{line}: is not UTF-8 (byte 0x{data[error.start]:02x})") from None


def absolute(path: Path, folder: Path) -> Path:
    """``path`` seen from ``folder``, with ``~`` and ``..`` worked out but links left alone; ``-`` stays."""
    if path == Path("-"):
        return path
    # Not Path.expanduser: that fails for the home of a user who does not exist.
    return Path(os.path.normpath(folder / os.path.expanduser(path)))  # noqa: PTH111


def merge(
    base: Node, later: Node, annotation: object | None, path: tuple[str, ...] = (), *, whole: bool = False
) -> Node:
    """Merge ``later`` into ``base``: mappings key by key, everything else replaces.

    A section without a value changes nothing, unless it may be null. A mapping of another ``type`` replaces
    the old one. A mapping of the same type, or without one, is merged into a plain value that stands for a
    section: the name of a choice (``depth_lstm`` stands for ``{type: depth_lstm}``) or the value of a
    `ShorthandSection`. ``path`` is the place of both, for errors. ``whole`` says that nothing is merged below
    ``base`` any more, so that a mapping without a type in it has the default type.
    """
    if not isinstance(later.value, dict):
        return base if is_empty_section(later, annotation) else later
    if isinstance(base.value, list) and later.value and all(key.isdecimal() for key in later.value):
        return _merge_items(base, later, annotation, path, whole=whole)
    old = _written_out(base, later.value, annotation)
    if old is None:
        return later
    before = old["type"].value if "type" in old else default_type(annotation) if whole else None
    tag = later.value["type"].value if "type" in later.value else before
    if before is not None and tag != before:
        return later
    entries = dict(old)
    for key, value in later.value.items():
        below = child(annotation, key, tag)
        inner = entries.get(key)
        entries[key] = value if inner is None else merge(inner, value, below, (*path, key), whole=whole)
    return Node(entries, later.location)


def _written_out(base: Node, later: dict[str, Node], annotation: object | None) -> dict[str, Node] | None:
    """The settings of a mapping, or those that a plain value stands for; None where they are replaced."""
    if isinstance(base.value, dict):
        return base.value
    if isinstance(base.value, list) or base.value is None:
        return None
    keys: tuple[str, ...] = ()
    if isinstance(base.value, str) and chosen_by_type(annotation):
        keys = ("type",)
    elif (section := shorthand_at(annotation)) and later.keys().isdisjoint(section.instead_of_plain):
        keys = section.plain_sets
    return dict.fromkeys(keys, base) if keys else None


def is_empty_section(node: Node, annotation: object | None) -> bool:
    """Whether nothing is written where a section must be."""
    return node.value is None and bool(sections(annotation)) and type(None) not in alternatives(annotation)


def _merge_items(
    base: Node, later: Node, annotation: object | None, path: tuple[str, ...], *, whole: bool
) -> Node:
    assert isinstance(base.value, list)
    assert isinstance(later.value, dict)
    items = list(base.value)
    for key, value in later.value.items():
        index = int(key[:9])
        if index >= len(items):
            raise UsageError(
                f"{value.location}: {'.'.join(path)}: no item {key}: it has {len(items)}, counted from 0"
            )
        items[index] = merge(items[index], value, child(annotation, index), (*path, key), whole=whole)
    return Node(items, base.location)


def tree_of_overrides(
    section: type[Section], overrides: Sequence[tuple[str, str]], problems: Problems, example: str
) -> Node:
    """The tree of ``key.sub=value`` settings; whether ``section`` has them is not looked at here.

    Args:
        section: What they are settings of.
        overrides: The texts, each with what messages call its place; later ones win.
        problems: Receives those that are no settings.
        example: A right one, for errors.
    """
    changes = Node({}, SourceLocation(COMMAND_LINE, None, Path.cwd()))
    for place, text in overrides:
        location = SourceLocation(place, None, Path.cwd())
        key, equals, value = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            problems.add(location, f"{text!r} is not key=value, such as {example}")
        elif parts == ["extends"]:
            problems.add(location, "extends: cannot be set here; write it into a run file")
        else:
            node = parse_yaml(value, location, problems, tuple(parts)) or Node(None, location)
            for part in reversed(parts):
                node = Node({part: node}, location)
            changes = merge(changes, node, section)
    return changes


_Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class UnusedSetting:
    """A setting that changes nothing: where it was written, and a line that says why."""

    location: SourceLocation
    text: str


def find_unused_settings(section: Section, tree: Node) -> Mapping[str, UnusedSetting]:
    """Settings of ``tree`` without effect, by dotted key; ``section`` was built from it."""
    unused: dict[str, UnusedSetting] = {}
    for path, _, reason in _unused(section, ()):
        node = node_at(tree, path)
        if node is not None:
            name = ".".join(str(part) for part in path)
            value = "" if isinstance(node.value, dict) else f" {describe_value(node)}"
            unused[name] = UnusedSetting(node.location, f"{name}:{value} has no effect: {reason}")
    return unused


def canonical_settings(section: Section) -> dict[str, PlainValue]:
    """The values of a section for JSON, those that change nothing at their defaults.

    So settings that mean the same are the same.
    """
    values = section.model_dump(mode="json")
    for path, owner, _ in _unused(section, ()):
        name = str(path[-1])
        default = type(owner).model_fields[name].get_default(call_default_factory=True)
        plain = owner.model_copy(update={name: default}).model_dump(mode="json", include={name})
        below: Any = values
        for part in path[:-1]:
            below = below[part]
        below[name] = plain[name]
    return values


def _unused(section: Section, above: _Keys) -> Iterator[tuple[_Keys, Section, str]]:
    """Settings without effect that are not at their defaults: path, the section they stand in, and reason."""
    for key, reason in section.unused_settings():
        *keys, name = key.split(".")
        place = [int(part) if part.isdigit() else part for part in keys]
        owner: Any = section
        for part in place:
            owner = owner[part] if isinstance(part, int) else getattr(owner, part)
        field = type(owner).model_fields.get(name)  # not every choice has it
        if field is not None and getattr(owner, name) != field.get_default(call_default_factory=True):
            yield (*above, *place, name), owner, reason
    for name in type(section).model_fields:
        value = getattr(section, name)
        for index, item in enumerate(value) if isinstance(value, list | tuple) else ((None, value),):
            if isinstance(item, Section):
                yield from _unused(item, (*above, name) if index is None else (*above, name, index))
