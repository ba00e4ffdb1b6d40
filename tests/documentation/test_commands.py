"""Every command in the documentation has options that exist."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from markdown_pages import DOCS, ROOT, all_pages, blocks

from deepwire.cli.main import COMMANDS, KEYS, build_app

# Stand for something that the reader fills in.
_OPEN = ("...", "…")


def commands(page: Path) -> list[str]:
    """The words behind `deepwire` in the page's blocks of code, up to a pipe, redirection or comment."""
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


def test_yaml_blocks_are_yaml() -> None:
    found = [block.text for page in all_pages() for block in blocks(page) if block.language == "yaml"]
    assert len(found) > 20
    assert [text for text in found if not isinstance(yaml.safe_load(text), dict | list)] == []


@pytest.mark.parametrize("page", sorted(DOCS.glob("start/coming-from-*.md")), ids=lambda page: page.stem)
def test_tables_of_other_toolkits_name_commands_and_keys_that_exist(page: Path) -> None:
    code = re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
    found = [text.removeprefix("deepwire ") for text in code if text.startswith("deepwire ")]
    for command in found:
        parse(words(command))
    keys = {text for text in code if re.fullmatch(r"(?:data|model|training|decoding)(?:\.[a-z_]+)+", text)}
    keys = {text for text in keys if not text.endswith((".npz", ".safetensors"))}
    assert len(found) >= 5
    assert len(keys) >= 10
    assert keys - set(KEYS.read_text(encoding="utf-8").split()) == set()
