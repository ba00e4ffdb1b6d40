"""Every command in the documentation has options that exist; every piece of a run file has keys that do."""

from __future__ import annotations

import re
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml

from deepwire.cli.main import COMMANDS, build_app
from deepwire.config.json_schema import schema_of
from deepwire.config.yaml_tree import Problems, SourceLocation, parse_yaml, plain
from deepwire.runfile import RunFile

sys.path.insert(0, str(Path(__file__).parent))
from markdown_pages import ROOT, all_pages, blocks

_KEYS = set(RunFile.model_fields) | {"extends"}
# Stand for something that the reader fills in.
_OPEN = ("...", "…")


def commands(page: Path) -> list[str]:
    """What follows `deepwire` in the page's blocks of code, up to a pipe, redirection or comment."""
    found = []
    for block in blocks(page):
        text = block.text.replace("\\\n", " ")
        for line in text.splitlines():
            for match in re.finditer(r"(?:^|[|;&] ?|-m )deepwire (?!:)(.*)", line.removeprefix("$ ")):
                if not any(mark in match[1] for mark in _OPEN):
                    found.append(match[1])
    return found


def words(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|<>;&")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    taken: list[str] = []
    for word in lexer:
        if re.fullmatch(r"[|<>;&]+", word):
            break
        taken.append(word)
    return taken


@cache
def parser(verb: str) -> Any:
    tree: Any = typer.main.get_command(build_app(verb))
    return tree.commands[verb]


def parse(arguments: list[str]) -> None:
    """Parse as the command line would, and run nothing."""
    while arguments[0] == "--plugin":
        arguments = arguments[2:]
    verb, *rest = arguments
    if verb.startswith("--") or verb not in COMMANDS:
        assert verb in ("--version", "--help", "--install-completion", "--show-completion", "COMMAND"), verb
        return
    command, name = parser(verb), verb
    if hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        assert name in command.commands or name.isupper(), f"{verb} has no {name}"
        command = command.commands.get(name)
    if command is not None and "--help" not in rest:
        command.make_context(name, list(rest), resilient_parsing=False)


PAGES = [page for page in all_pages() if commands(page)]


def test_there_are_commands() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_have_options_that_exist(page: Path) -> None:
    wrong = []
    for command in commands(page):
        try:
            parse(words(command))
        except (typer.TyperException, AssertionError, ValueError) as error:
            wrong.append(f"deepwire {command}: {getattr(error, 'message', error)}")
    assert wrong == []


def pieces(page: Path) -> list[str]:
    """Blocks of YAML that hold sections of a run file, also those that a command writes into a file.

    Where a comment says `# or: VALUE`, the block with that value is one more.
    """
    found = [block.text for block in blocks(page) if block.language == "yaml"]
    for block in blocks(page):
        found += re.findall(r"<<'YAML'\n(.*?)^YAML$", block.text, re.DOTALL | re.MULTILINE)
    for text in list(found):
        for other in re.finditer(r"^( *\w+: ).*# or:? ([\[{].*)$", text, re.MULTILINE):
            found.append(text.replace(other[0], other[1] + other[2]))
    return [text for text in found if _KEYS & set(_top_keys(text))]


def _top_keys(text: str) -> list[str]:
    return re.findall(r"^(\w+):", text, re.MULTILINE)


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = schema_of(RunFile, "run file")
    return jsonschema.Draft202012Validator({**schema, "if": False})


PAGES_WITH_PIECES = [page for page in all_pages() if pieces(page)]


@pytest.mark.parametrize("page", PAGES_WITH_PIECES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pieces_of_run_files_have_keys_that_exist(
    page: Path, validator: jsonschema.Draft202012Validator
) -> None:
    wrong = []
    for text in pieces(page):
        if "systems:" in text or "title:" in text:
            continue  # a plan, which has tests of its own
        problems = Problems()
        tree = parse_yaml(text, SourceLocation(page.name, 1, page.parent), problems)
        problems.raise_if_any()
        assert tree is not None
        for error in validator.iter_errors(plain(tree)):
            wrong.append(f"{page.name}: {'.'.join(map(str, error.absolute_path))}: {error.message[:200]}")
    assert wrong == []


def test_yaml_blocks_are_yaml() -> None:
    found = [block.text for page in all_pages() for block in blocks(page) if block.language == "yaml"]
    assert len(found) > 20
    assert [text for text in found if not isinstance(yaml.safe_load(text), dict | list)] == []
