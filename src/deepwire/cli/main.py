"""The command ``deepwire``: a table of verbs, loaded when used; errors become exit codes here."""

from __future__ import annotations

import codecs
import difflib
import errno
import gc
import importlib
import io
import logging
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from deepwire import __version__, command_line, plugins, recipes
from deepwire.cli.line_by_line import HarmlessFormatter, silence_stdout
from deepwire.errors import DeepwireError, UsageError, harmless
from deepwire.io.atomic import is_disk_full
from deepwire.ops.process import allow_float32_choice

_SPINS = "20000"


def limit_openmp_spinning() -> None:
    """Let idle threads of GNU OpenMP go to sleep after some tens of microseconds and not after a millisecond.

    A thread that waits awake for its next piece of work starts it sooner. But where another program wants the
    same core, it keeps that program, or worse a working thread of its own, from running: beside another busy
    program, training was more than ten times slower with the default. What the user has set is left alone.

    It has an effect only before torch is imported for the first time.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)


COMMANDS = {
    "data": ("data", "Check parallel text; download files and verify their digests."),
    "prepare": ("prepare", "Filter the text of a run file, learn its vocabulary, cut it into subwords."),
    "train": ("train", "Train a model; the same command continues an interrupted run."),
    "finetune": ("finetune", "Fine-tune a model on your own text; compare before and after."),
    "translate": ("translate", "Translate text with a model, line by line."),
    "translate-file": (
        "translate_file",
        "Translate a document: text, Markdown, HTML, subtitles, .po, XLIFF, .docx, .odt, JSON.",
    ),
    "generate": ("generate", "Continue prompts with a language model."),
    "serve": ("serve", "Serve a model over HTTP: a web page and a JSON API."),
    "score": ("score", "Print the log-probabilities of given translations."),
    "perplexity": ("score", "Print the perplexity of text under a language model: per token, word, byte."),
    "evaluate": ("evaluate", "Score translations or models with BLEU, chrF and TER; test differences."),
    "evaluate-directions": (
        "evaluate",
        "Evaluate a multilingual model: each direction, averages, groups, win ratio.",
    ),
    "distill": ("synthesize", "Translate training text with a teacher model, for a student."),
    "back-translate": ("synthesize", "Translate monolingual target text into training sources."),
    "shortlist": ("shortlist", "Learn a lexical shortlist of target subwords, for faster decoding."),
    "average": ("average", "Average the last checkpoints of a run into one model."),
    "import": ("import_model", "Convert a checkpoint of fairseq, Neutron, transformers or Marian."),
    "export": ("export", "Convert a model for another program; check that it translates alike there."),
    "doctor": ("doctor", "Diagnose a run: what is odd in its text, settings and curves, and what to try."),
    "inspect": ("inspect", "Count parameters and show settings of a run file, recipe or model."),
    "models": ("models", "List and download trained models; add one to a registry."),
    "schema": ("schema", "Print the JSON Schema of the run file, for editors and other programs."),
    "study": ("study", "Train systems with several seeds by a plan; report tested differences."),
    "analyze": (
        "analyze",
        "Look inside a model: weights, gates, gradients, depth, alignment; compare runs; measure speed.",
    ),
    "recipes": (
        "recipes",
        "List the recipes shipped with deepwire (without a subcommand); show or check one.",
    ),
}
"""By name: the module of `deepwire.cli` that has the function or group of commands, and a line of help."""

EPILOG = (
    "Exit codes: 0 done, 1 failure, 2 wrong command or run file, 3 wrong data, 4 wrong model or checkpoint, "
    "5 training diverged, 6 out of memory or disk, 130 interrupted, 143 terminated."
)

_WRONG_PATH = (FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError)
_WRONG_NAME = {errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP}
KEYS = Path(__file__).with_name("keys.txt")
"""The settings of a run file, which its classes would take seconds to tell; a test compares them."""
# The shell sets it to ask what may stand at the cursor; typer derives the name from that of the command.
_COMPLETE = "_DEEPWIRE_COMPLETE"
# Packages, separated by commas.
_PLUGINS = "DEEPWIRE_PLUGINS"
BROKEN_PIPE = 141
INTERRUPTED = 130


def run() -> NoReturn:
    """Entry point of the command: runs it and exits."""
    limit_openmp_spinning()
    code = main(sys.argv[1:])
    gc.freeze()  # else Python looks through all objects before it ends
    sys.exit(code)


def main(arguments: Sequence[str]) -> int:
    """Run ``deepwire`` with these arguments and return the exit code; errors are printed, not raised."""
    _reopen_closed_streams()
    _use_utf8()
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(HarmlessFormatter())
    allow_float32_choice()
    debug = False
    try:
        if _COMPLETE in os.environ:
            _complete()
        arguments, debug, packages = _take_general_options(arguments)
        command_line.remember([*arguments[:1], *(f"--plugin={name}" for name in packages), *arguments[1:]])
        _use_plugins(packages)
        code = _invoke(arguments or ["--help"])
        sys.stdout.flush()
    except BrokenPipeError:
        return _handle_broken_pipe()
    except SystemExit as end:  # rich, which prints --help, makes this of it
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return _handle_broken_pipe()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # the one place that may: whatever it is, the user gets a line and a code
        if debug:
            traceback.print_exc()
        return _report(error, debug, arguments)
    return code


def _complete() -> NoReturn:
    """Answer the shell and exit; only the command that was typed is loaded."""
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    verb = next((word for word in typed.split()[1:] if word in COMMANDS), None)
    command: Any = typer.main.get_command(build_app(verb))
    for each in (command, *getattr(command, "commands", {}).values()):
        for inner in (each, *getattr(each, "commands", {}).values()):
            for parameter in inner.params:
                if _choices(parameter):
                    vars(parameter)["_custom_shell_complete"] = _matching
    command.main([], prog_name="deepwire", complete_var=_COMPLETE)
    raise SystemExit(1)


def _choices(parameter: Any) -> Iterable[str]:
    """The values that a parameter can have, by its placeholder."""
    metavar = parameter.metavar or ""
    if "RUN.yaml" in metavar or "RECIPE" in metavar:
        return [*recipes.names(), *map(str, Path().glob("*.yaml"))]
    if metavar == "[KEY=VALUE]...":
        return [f"{key}=" for key in KEYS.read_text(encoding="utf-8").splitlines()]
    return metavar.split("|") if re.fullmatch(r"[a-z][\w+-]*(\|[a-z][\w+-]*)+", metavar) else ()


def _matching(_context: object, parameter: Any, typed: str) -> list[str]:
    return [choice for choice in _choices(parameter) if choice.startswith(typed)]


def build_app(verb: str | None) -> typer.Typer:
    """The command tree with only ``verb`` loaded; the other verbs are names with a line of help.

    Loading one verb keeps ``deepwire --help`` from importing torch, numpy or sacrebleu.
    """
    app = typer.Typer(
        name="deepwire",
        help="Train, study and serve deep Transformer translation models.",
        epilog=EPILOG,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name, (module, help_text) in COMMANDS.items():
        if name != verb:
            app.command(name=name, help=help_text)(_unloaded_command)
            continue
        found = vars(importlib.import_module(f"deepwire.cli.{module}"))
        names = ("app", name.replace("-", "_"), module)
        loaded: typer.Typer | Callable[..., None] = next(found[each] for each in names if each in found)
        if isinstance(loaded, typer.Typer):
            # A group that does something by itself has its own docstring as help.
            given: dict[str, Any] = {} if loaded.registered_callback else {"help": help_text}
            app.add_typer(loaded, name=name, **given)
        else:
            app.command(name=name)(loaded)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"deepwire {__version__} (torch {version('torch')}, Python {platform.python_version()})")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Print the versions of deepwire, torch and Python.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")]
PluginNames = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="PACKAGE", help="Import a package with parts of your own; repeatable."),
]


def _options(_version: Version = False, _debug: Debug = False, _plugin: PluginNames = None) -> None:
    """Options before the verb; but for ``--version`` they were taken out and stand here for ``--help``."""


def _unloaded_command() -> None:
    """Stands for a verb that was not chosen; it is only ever listed."""
    raise AssertionError("only the chosen verb is run")


def _invoke(arguments: Sequence[str]) -> int:
    verb = _verb(arguments)
    command = typer.main.get_command(build_app(verb if verb in COMMANDS else None))
    _leave_reading_to_commands(command)
    try:
        with command.make_context("deepwire", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return 0


def _verb(arguments: Sequence[str]) -> str:
    return next((argument for argument in arguments if not argument.startswith("-")), "")


def _report(error: Exception, debug: bool, arguments: Sequence[str]) -> int:
    """Print what went wrong and what to do about it; return the exit code."""
    lines, hint, code = _describe_error(error, arguments)
    if code == 1 and not debug and not isinstance(error, DeepwireError | typer.TyperException):
        hint = "run the same command with --debug to see the traceback"
    with suppress(OSError):  # where nobody can be told, because the terminal is gone, the code says it
        for line in lines:
            print(f"error: {harmless(line)}", file=sys.stderr)
        if hint:
            print(f"hint: {harmless(hint)}", file=sys.stderr)
    return code


def _describe_error(error: Exception, arguments: Sequence[str]) -> tuple[list[str], str, int]:
    """(lines, hint, exit code) of any exception of a command with these arguments."""
    if isinstance(error, DeepwireError):
        return error.message.splitlines() or [type(error).__name__], error.hint, error.exit_code
    if isinstance(error, typer.TyperException):
        return _describe_usage_error(error, _verb(arguments))
    of_torch = isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)  # on a CPU
    )
    if of_torch or isinstance(error, MemoryError):
        return [f"out of memory: {_first_line(error)}"], "try a smaller batch_tokens or micro_batch_tokens", 6
    if isinstance(error, OSError) and error.strerror:
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        full = is_disk_full(error)
        hint = "free some space and run the same command again" if full else ""
        wrong = isinstance(error, _WRONG_PATH) or error.errno in _WRONG_NAME
        return [f"{where}{error.strerror}"], hint, 6 if full else 2 if wrong else 1
    return [f"unexpected {type(error).__name__}: {_first_line(error)}"], "", 1


def _leave_reading_to_commands(command: Any) -> None:
    """Have the parser not ask whether a path may be read: the command that reads it knows what it is."""
    for parameter in command.params:
        # Only a parameter of ours has one, and nothing public leads there.
        info = getattr(getattr(parameter, "type_descriptor", None), "parameter_info", None)
        if info is not None:
            info.readable = False
    for inside in getattr(command, "commands", {}).values():
        _leave_reading_to_commands(inside)


def _describe_usage_error(error: typer.TyperException, verb: str) -> tuple[list[str], str, int]:
    """(lines, hint, exit code) of a wrong option or command; the parser's suggestion becomes the hint."""
    text = " ".join(error.format_message().split()).replace("Value error, ", "")
    if error.__cause__ is not None and hasattr(error.__cause__, "errors"):  # pydantic's
        fault = error.__cause__.errors()[0]
        if fault["type"] != "value_error":
            must = fault["msg"].replace("Input should", "must")
            text = text.replace(fault["msg"], f"{must}, not {fault['input']}")
    match = re.search(r"\s*\(Possible options: (.+)\)$|\.?\s*Did you mean (.+)\?$", text)
    guesses = [] if match is None else [name.strip() for name in (match[1] or match[2]).split(",")]
    text = text if match is None else text[: match.start()]
    context = getattr(error, "ctx", None)
    path = f"deepwire {verb}".strip() if context is None else context.command_path
    typed = re.search(r"No such option: --?([^\s=]+?)\.?(\s|=|$)", text)
    if typed:  # dashes, which all have in common, make no name similar
        guesses = [
            f"--{near}" for near in difflib.get_close_matches(typed[1], [name[2:] for name in guesses])
        ]
    hint = f"did you mean {', '.join(guesses)}?" if guesses else f"see {path} --help"
    words = {str(each.metavar) for each in (context.command.params if context else ())}
    if typed and any("[KEY=VALUE]" in word for word in words):
        keys = _settings_called(typed[1], "" if "[KEY=VALUE]..." in words else "decoding.", not guesses)
        hint = f"settings have no dashes: {' or '.join(f'{key}=VALUE' for key in keys)}" if keys else hint
    return ([text.rstrip(".")] if text else []), hint, error.exit_code


def _settings_called(typed: str, section: str, sections: bool) -> list[str]:
    """The settings below a section that an option may have been meant to be: the outermost of its name.

    With `sections` it may be a section, too; a plain value sets few of these.
    """
    name = re.sub(r"[-.]", "_", typed)
    known = KEYS.read_text(encoding="utf-8").splitlines()
    whole = set() if sections else {key.rpartition(".")[0] for key in known}
    below = [key.removeprefix(section) for key in known if key.startswith(section) and key not in whole]
    ends = [(key, f".{key}"[-len(name) - 1 :]) for key in below]
    # `--alignment-layer` is alignment.layer, but `--sentences` is not max_sentences.
    found = [key for key, end in ends if end[0] == "." and end[1:].replace(".", "_") == name]
    least = min((key.count(".") for key in found), default=0)
    return [key for key in found if key.count(".") == least]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:300]


def _take_general_options(arguments: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    """Take ``--debug`` and ``--plugin`` out wherever they stand before ``--``.

    They may be appended to a failed command.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    others: list[str] = []
    packages: list[str] = []
    debug, before = False, iter(arguments[:end])
    for argument in before:
        if argument == "--debug":
            debug = True
        elif argument == "--plugin" or argument.startswith("--plugin="):
            packages.append(next(before, "") if argument == "--plugin" else argument.partition("=")[2])
        else:
            others.append(argument)
    if not all(packages):
        raise UsageError("--plugin needs the name of a package, such as --plugin my_package")
    return [*others, *arguments[end:]], debug, packages


def _use_plugins(packages: Sequence[str]) -> None:
    """Import packages, also those that DEEPWIRE_PLUGINS names; commands that this one starts do likewise."""
    named = os.environ.get(_PLUGINS, "").split(",")
    wanted = dict.fromkeys(name.strip() for name in (*named, *packages) if name.strip())
    for package in wanted:
        plugins.use(package)
    if packages:
        os.environ[_PLUGINS] = ",".join(wanted)


def _reopen_closed_streams() -> None:
    """A standard stream that the caller has closed leads nowhere: else the next file would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for all time


def _use_utf8() -> None:
    """Text is UTF-8 whatever the locale says; bytes of file names that are not go out as they came in."""
    codecs.register_error("bytes_or_escape", _keep_bytes_or_escape)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                encoding="utf-8", errors="surrogateescape" if stream is sys.stdin else "bytes_or_escape"
            )


def _keep_bytes_or_escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """Encode one character that UTF-8 cannot: a byte of a file name as itself, anything else as an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    code = ord(error.object[error.start])
    return bytes([code - 0xDC00]) if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}", error.start + 1


def _handle_broken_pipe() -> int:
    """The program that read our output has ended (``| head``): stop without a word, now and at exit."""
    silence_stdout()
    return BROKEN_PIPE
