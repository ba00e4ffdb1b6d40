from __future__ import annotations

import errno
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from deepwire import errors
from deepwire.cli import main as cli
from deepwire.cli.line_by_line import HarmlessFormatter, tell, warn
from deepwire.io.progress_line import ProgressLine

HEAVY = ("torch", "numpy", "sacrebleu", "sentencepiece", "pydantic", "yaml")


def deepwire(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "deepwire", *arguments]
    return subprocess.run(
        command, capture_output=True, timeout=300, env={**os.environ, **environment}, check=False
    )


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch):
    """Let ``deepwire recipes`` raise this exception."""

    def install(error: BaseException) -> None:
        def command() -> None:
            raise error

        app = typer.Typer(invoke_without_command=True)
        app.callback()(command)
        monkeypatch.setattr("deepwire.cli.recipes.app", app)

    return install


def test_help_lists_every_verb_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    words = set(re.findall(r"[\w-]+", capsys.readouterr().out))
    assert set(cli.COMMANDS) <= words
    assert {"0", "1", "2", "3", "4", "5", "6", "130", "143"} <= words
    assert cli.main(["-h"]) == 0
    assert cli.main([]) == 0


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    """By help and version nothing that takes long, and by the modules of the commands no torch."""
    code = (
        "import sys, importlib; from deepwire.cli.main import COMMANDS, main\n"
        "code = main(['--help']) or main(['--version'])\n"
        f"heavy = set(sys.modules) & set({HEAVY!r})\n"
        "for module, _ in COMMANDS.values():\n"
        "    importlib.import_module('deepwire.cli.' + module)\n"
        f"heavy |= set(sys.modules) & set({HEAVY[:4]!r})\n"
        "sys.exit(code or ' '.join(sorted(heavy)) or None)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.parametrize("arguments", [["--help"], ["recipes"]])
def test_a_reader_that_has_ended_is_no_error(arguments) -> None:
    """As with ``| head -1``: exit code 141, and nothing on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "deepwire", *arguments]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=300, check=False)
    os.close(writer)
    assert (result.returncode, result.stderr) == (cli.BROKEN_PIPE, b"")


def test_version(command) -> None:
    assert re.fullmatch(r"deepwire \S+ \(torch \d\S+, Python 3\.\S+\)\n", command("--version").out)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["trian"], "did you mean 'train'?"),
        (["analyze", "attention"], "see deepwire analyze --help"),
        (["translate", "--nope"], "see deepwire translate --help"),
        (["translate", "m", "--temperature", "3"], "settings have no dashes: sampling.temperature=VALUE"),
        (["translate", "m", "--sampling"], "did you mean --sample?"),
        (["recipes", "show", "demo", "--resolvd"], "did you mean --resolved?"),
        (["train", "run.yaml", "--max-updates", "9"], "settings have no dashes: training.max_updates=VALUE"),
        (["analyze", "signal", "demo", "--sentences", "9"], "see deepwire analyze signal --help"),
    ],
)
def test_a_wrong_command_gets_a_suggestion(arguments: list[str], hint: str, refused) -> None:
    refused(2, f"\nhint: {hint}", *arguments)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            errors.DataError("a.de:3: is not UTF-8", "fix it"),
            3,
            "error: a.de:3: is not UTF-8\nhint: fix it\n",
        ),
        (errors.UsageError("x:1: one\nx:2: two"), 2, "error: x:1: one\nerror: x:2: two\n"),
        (errors.ModelError("m: damaged"), 4, "error: m: damaged\n"),
        (errors.DivergedError("nan"), 5, "error: nan\n"),
        (errors.ResourceError("full"), 6, "error: full\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "x.de"),
            2,
            "error: x.de: No such file or directory\n",
        ),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x"), 2, "error: x: File name too long\n"),
        (typer.Exit(7), 7, ""),
    ],
)
def test_an_error_becomes_lines_and_an_exit_code(
    error: BaseException, code: int, text: str, raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(error)
    assert cli.main(["recipes"]) == code
    assert capsys.readouterr().err == text


def test_an_unexpected_error_is_one_line_and_a_traceback_only_on_request(
    raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ZeroDivisionError("by\nzero"))
    assert cli.main(["recipes"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: unexpected ZeroDivisionError: by",
        "hint: run the same command with --debug to see the traceback",
    ]
    for arguments in (["--debug", "recipes"], ["recipes", "--debug"]):
        assert cli.main(arguments) == 1
        assert "Traceback" in capsys.readouterr().err


def test_closed_streams_are_no_mistake() -> None:
    command = f"exec {sys.executable} -m deepwire --version <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], timeout=300, check=False).returncode == 0


def test_output_is_utf8_whatever_the_locale_says(tmp_path: Path) -> None:
    result = deepwire("recipes", "show", "größe", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 2
    assert "größe" in result.stderr.decode("utf-8")


def test_an_interrupt_is_answered_at_once() -> None:
    code = (
        # Whoever runs the tests in the background may have told all of them to ignore interrupts.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import time, sys, typer, deepwire.cli.recipes as r; from deepwire.cli.main import main\n"
        "app = typer.Typer(invoke_without_command=True)\n"
        "app.callback()(lambda: (print('up', flush=True), time.sleep(1000)))\n"
        "r.app = app; sys.exit(main(['recipes']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=300)
    assert (process.returncode, stderr) == (130, b"interrupted\n")


CONTROLS = ["a\x1b[2Jb", "a\x9b2Jb", "a\x07", "a\rb", "a\u202eb"]


@pytest.mark.parametrize("name", CONTROLS)
def test_an_error_never_changes_the_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of files and what a server says are quoted, not obeyed."""
    assert cli.main(["inspect", name]) != 0
    said = capsys.readouterr().err
    assert all(letter.isprintable() for line in said.split("\n") for letter in line)


@pytest.mark.parametrize("name", CONTROLS)
def test_nothing_that_is_told_changes_the_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tell(name)
    warn(name)
    with ProgressLine(every=0, live=True, transient=False) as progress:
        progress.count(name, 1)
    said = capsys.readouterr().err.replace("\r\x1b[K", "")
    said += HarmlessFormatter().format(logging.makeLogRecord({"msg": "%s", "args": (name,)}))
    assert said.count("a") >= 4
    assert all(letter.isprintable() for line in said.split("\n") for letter in line), repr(said)
