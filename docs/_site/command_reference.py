"""The reference of the commands: every argument and option, from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from deepwire.cli.main import COMMANDS, EPILOG, build_app

FOLDER = "reference/commands"
_EXAMPLE = re.compile(r"^(deepwire|torchrun|cat|echo|zcat|sort) ")
_LISTED = re.compile(r"^Examples?: (.*)", re.DOTALL)


def pages() -> dict[str, str]:
    """Markdown by address: one page for each command, and the list of them."""
    made = {f"{FOLDER}/{name}.md": _page(name) for name in COMMANDS}
    made[f"{FOLDER}/index.md"] = _list()
    return made


def _list() -> str:
    general = typer.main.get_command(build_app(None))
    lines = [
        "# Commands",
        "",
        "`deepwire COMMAND --help` shows the same as these pages. [Shell completion](../../howto/editors.md)"
        " fills in commands and options.",
        "",
        "| command | what it does |",
        "|---|---|",
        *(f"| [`deepwire {name}`]({name}.md) | {_cell(text)} |" for name, (_, text) in COMMANDS.items()),
        "",
        "## Options of every command",
        "",
        *_options(general),
        "",
        EPILOG.replace("Exit codes:", "[Exit codes](../errors.md):"),
        "",
    ]
    return "\n".join(lines)


def _page(name: str) -> str:
    group: Any = typer.main.get_command(build_app(name))
    command = group.commands[name]
    return f"# `deepwire {name}`\n\n" + "\n".join(_describe(f"deepwire {name}", command, 2)) + "\n"


def _describe(path: str, command: Any, level: int) -> Iterator[str]:
    yield from _help(command.help or "")
    for name, inner in getattr(command, "commands", {}).items():
        yield f"\n{'#' * level} `{path} {name}`\n"
        yield from _describe(f"{path} {name}", inner, level + 1)
    if not hasattr(command, "commands"):
        yield from ("", f"```\n{path} {_usage(command)}\n```", "", *_options(command))


def _help(text: str) -> Iterator[str]:
    """The text of the command; its examples as code."""
    examples: list[str] = []
    for paragraph in inspect.cleandoc(text.replace("\b", "")).split("\n\n"):
        listed = _LISTED.match(paragraph)
        if listed:
            examples += (command.strip() for command in " ".join(listed[1].split()).split(";"))
        elif _EXAMPLE.match(paragraph):
            examples.append(paragraph)
        else:
            yield from (_plain(paragraph), "")
    if examples:
        yield from ("```sh", *examples, "```")


def _usage(command: Any) -> str:
    names = [_argument(parameter) for parameter in command.params if _is_argument(parameter)]
    return " ".join(["[OPTION]...", *names])


def _options(command: Any) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if _is_argument(parameter)]
    options = [each for each in command.params if not _is_argument(each) and not each.hidden]
    if arguments:
        yield from ("| argument | meaning |", "|---|---|")
        yield from (
            f"| `{_argument(each).replace('|', chr(92) + '|')}` | {_cell(each.help)} |" for each in arguments
        )
        yield ""
    if options:
        yield from ("| option | value | default | meaning |", "|---|---|---|---|")
        for each in options:
            names = ", ".join(f"`{name}`" for name in (*each.opts, *each.secondary_opts))
            yield f"| {names} | {_value(each)} | {_default(each)} | {_cell(each.help)} |"


def _is_argument(parameter: Any) -> bool:
    return type(parameter).__name__.endswith("Argument")


def _argument(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _number(number: float) -> str:
    return f"{int(number) if number == int(number) else number:,}"


def _value(option: Any) -> str:
    if option.is_flag:
        return ""
    if option.metavar:
        return f"`{option.metavar}`".replace("|", "\\|")
    kind = option.type_descriptor.annotation
    named = {int: "whole number", float: "number", str: "text", Path: "path"}
    text = named.get(kind, getattr(kind, "__name__", "text") if isinstance(kind, type) else "text")
    values = getattr(kind, "__args__", ())
    if values and all(isinstance(value, str) for value in values):
        return ", ".join(f"`{value}`" for value in values)
    low, high = option.min, option.max
    limits = [f"≥ {_number(low)}"] if low is not None else []
    limits += [f"≤ {_number(high)}"] if high is not None and high < 2**24 else []
    return f"{text} {', '.join(limits)}".strip()


def _default(option: Any) -> str:
    value = option.default
    return "" if value in (None, False, "", (), []) or callable(value) else f"`{value}`"


def _cell(text: str | None) -> str:
    return _plain(re.sub(r"\s+", " ", text or "")).replace("|", "\\|")


def _plain(text: str) -> str:
    return text.replace("``", "`").replace("<", "&lt;")
