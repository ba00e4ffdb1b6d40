"""The page on errors names the exit codes that the program has, and no others."""

from __future__ import annotations

import re

import pytest
from markdown_pages import DOCS

from deepwire import errors
from deepwire.cli.main import BROKEN_PIPE, EPILOG
from deepwire.errors import DeepwireError
from deepwire.training import state

PAGE = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([\d, ]+) \| ([^|]+) \|", PAGE, re.MULTILINE)
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DeepwireError)]


def codes(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\b\d+\b", text)}


def test_the_table_has_the_codes_of_the_program_and_no_others() -> None:
    signals = {128 + number for number in (*state._ALWAYS, *state._WHERE_FATAL)}
    documented = set[int]().union(*(codes(f"{first} {meaning}") for first, meaning in ROWS))
    assert documented == {0, BROKEN_PIPE, *signals, *(kind.exit_code for kind in KINDS)}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_class_of_errors_is_on_the_page_and_says_its_code(kind: type[DeepwireError]) -> None:
    assert f"`{kind.__name__}`" in PAGE
    assert kind is DeepwireError or f"(exit code {kind.exit_code})" in (kind.__doc__ or "")


def test_the_help_says_what_the_table_says() -> None:
    said = re.findall(r"(\d+) ([^,.]+)", EPILOG.partition(":")[2])
    assert {int(code) for code, _ in said} >= {0, *(kind.exit_code for kind in KINDS)}
    for code, meaning in said:
        (told,) = (row for first, row in ROWS if int(code) in codes(first))
        assert meaning in told, code
