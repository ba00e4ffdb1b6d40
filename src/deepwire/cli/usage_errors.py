"""Errors of the parser of options in the words of deepwire: what is wrong, and what to do about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperOption

from deepwire.cli.line_by_line import warn


@contextmanager
def naming_the_command(command: Any, arguments: Sequence[str]) -> Iterator[None]:
    """Give errors their command where the parser does not, as for an option without its value.

    Args:
        command: The whole of ``deepwire``, for the parser.
        arguments: Its arguments.
    """
    try:
        yield
    except typer.TyperException as error:
        if getattr(error, "ctx", None) is None:
            vars(error).update(ctx=_chosen(command, arguments)[0])
        raise


def warn_of_repeated(command: Any, arguments: Sequence[str]) -> None:
    """Say where an option of one value is given twice: ``-i A -i B``, where the last counts, as everywhere.

    Args:
        command: The whole of ``deepwire``, for the parser.
        arguments: Its arguments.
    """
    context, rest = _chosen(command, arguments)
    try:
        given, _, order = context.command.make_parser(context).parse_args(rest)
    except typer.TyperException:
        return  # said when the command is run
    options = [
        each for each in order if isinstance(each, TyperOption) and not (each.multiple or each.is_flag)
    ]
    for option in dict.fromkeys(options):
        if options.count(option) > 1:
            names = " or ".join(option.opts)
            warn(f"{names} is given {options.count(option)} times; the last counts: {given[option.name]}")


def _chosen(command: Any, arguments: Sequence[str]) -> tuple[typer.Context, list[str]]:
    """The context of the command that the arguments name, as far as they name one; and what follows."""
    # With its settings, such as the names of --help, which the command keeps from its first use on.
    context = typer.Context(command, info_name="deepwire", **command.context_settings)
    rest = list(arguments)
    for place, argument in enumerate(arguments, 1):
        commands = getattr(context.command, "commands", {})
        if argument in commands:
            context = typer.Context(commands[argument], parent=context, info_name=argument)
            rest = list(arguments[place:])
    return context, rest


def leave_reading_to_commands(command: Any) -> None:
    """Have the parser not ask whether a path may be read: the command that reads it knows what it is.

    Args:
        command: A command of the parser, or a group of them.
    """
    for parameter in command.params:
        # Only a parameter of ours has one, and nothing public leads there.
        info = getattr(getattr(parameter, "type_descriptor", None), "parameter_info", None)
        if info is not None:
            info.readable = False
    for inside in getattr(command, "commands", {}).values():
        leave_reading_to_commands(inside)


def described(error: typer.TyperException) -> tuple[list[str], str, int]:
    """(lines, hint, exit code) of a wrong option or command.

    The suggestion that the parser puts into the sentence becomes the hint.
    """
    text = " ".join(error.format_message().split())
    if error.__cause__ is not None and hasattr(error.__cause__, "errors"):  # pydantic's
        from deepwire.config.validation_messages import wrong_option

        text = text.replace(error.message, wrong_option(error.__cause__.errors()[0]))
    match = re.search(r"\s*\(Possible options: (.+)\)$|\.?\s*Did you mean (.+)\?$", text)
    context = getattr(error, "ctx", None)
    command = "deepwire" if context is None else context.command_path
    typed = re.search(r"No such option: --?(\S+?)\.?(\s|$)", text)
    guesses = (match[1] or match[2]) if match else ""
    near = _similar_options(typed[1], guesses) if typed else guesses
    hint = f"did you mean {near}?" if near else f"see {command} --help"
    parameters = [] if context is None else [each.name for each in context.command.params]
    if "overrides" in parameters and typed and (keys := _settings(typed[1].partition("=")[0])):
        hint = f"settings have no dashes: {' or '.join(f'{key}=VALUE' for key in keys)}"
    text = text[: match.start()] if match else text
    return ([text.rstrip(".")] if text else []), hint, error.exit_code


def _settings(typed: str) -> list[str]:
    """The settings that an option may have been meant to be: of those of its name the outermost."""
    from deepwire.config.section import described_keys
    from deepwire.runfile import RunFile

    name = typed.replace("-", "_")
    if "." in name:
        return [name]
    found = dict.fromkeys(key for key, _ in described_keys(RunFile) if key.rpartition(".")[2] == name)
    least = min((key.count(".") for key in found), default=0)
    return [key for key in found if key.count(".") == least]


def _similar_options(typed: str, guesses: str) -> str:
    """The parser's guesses that are near without the dashes, which all have in common."""
    names = {guess.strip().lstrip("-"): guess.strip() for guess in guesses.split(",")}
    return ", ".join(names[name] for name in difflib.get_close_matches(typed, names))
