"""A key that is set later changes it alone, also where a plain value stands for the whole section."""

from __future__ import annotations

from collections.abc import Iterator
from operator import or_
from pathlib import Path
from types import GenericAlias
from typing import TypeVar

import pytest

from deepwire.config.section import Section, ShorthandSection
from deepwire.config.settings_reader import merge
from deepwire.config.yaml_tree import Node, SourceLocation, plain
from deepwire.runfile import RunFile

HERE = SourceLocation("run.yaml", 1, Path.cwd())
SectionType = TypeVar("SectionType", bound=Section)


def below(section: type[SectionType]) -> Iterator[type[SectionType]]:
    """All classes of deepwire that are made from one, once a run file is known."""
    for each in section.__subclasses__():
        yield from below(each)
        if each.__module__.startswith(RunFile.__module__.split(".")[0]):
            yield each


SHORTHANDS = [section for section in below(ShorthandSection) if "plain_sets" in vars(section)]


def plain_of(section: type[ShorthandSection]) -> str | float:
    """A plain value that may stand for the section."""
    return "documents" if section.written_as == (str,) else 0.25


def test_what_may_be_written_as_a_plain_value_says_which_settings_that_is() -> None:
    assert len(SHORTHANDS) >= 9
    assert [s for s in below(Section) if s.written_as and not issubclass(s, ShorthandSection)] == []
    for section in SHORTHANDS:
        whole = dict.fromkeys(section.plain_sets, plain_of(section))
        assert section.model_validate(plain_of(section)) == section.model_validate(whole)


@pytest.mark.parametrize("section", SHORTHANDS, ids=lambda section: section.__name__)
def test_a_key_changes_a_plain_value_in_this_key_alone(section: type[ShorthandSection]) -> None:
    """Also where it may be left out, and where it stands for a list of one."""
    base, new = Node(plain_of(section), HERE), Node("new", HERE)
    for key in section.model_fields:
        for annotation in (section, or_(section, None), GenericAlias(list, (section,))):
            changed = merge(base, Node({key: new}, HERE), annotation)
            kept = {} if key in section.instead_of_plain else dict.fromkeys(section.plain_sets, base.value)
            assert plain(changed) == {**kept, key: "new"}


def test_null_and_a_value_of_a_wrong_kind_are_what_they_were() -> None:
    """Nothing is taken from null; a wrong value is not lost, so that it is still told."""
    section = SHORTHANDS[0]
    later = Node({"other": Node(1, HERE)}, HERE)
    assert merge(Node(None, HERE), later, section) is later
    assert plain(merge(Node("wrong", HERE), later, section)) == {
        **dict.fromkeys(section.plain_sets, "wrong"),
        "other": 1,
    }
