"""Does what the shell blocks of a page say, in this process: files, commands, pipes into commands."""

from __future__ import annotations

import io
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepwire.cli.main import main


def steps(text: str) -> Iterator[tuple[str, str]]:
    """(command line, text behind `<<` for it), in order."""
    lines = iter(text.replace("\\\n", " ").splitlines())
    for line in lines:
        here = re.search(r"<<'(\w+)'$", line)
        body = []
        if here:
            for inner in lines:
                if inner == here[1]:
                    break
                body.append(inner)
        if line.strip() and not line.startswith("#"):
            yield line, "".join(f"{inner}\n" for inner in body)


def do(line: str, body: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Do one step; what it prints."""
    if line.startswith("cat > "):
        Path(line.split()[2]).write_text(body, encoding="utf-8")
        return ""
    if line.startswith("export "):
        name, _, value = line.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, value)
        if name == "PYTHONPATH":
            monkeypatch.syspath_prepend(str(Path(value).resolve()))
        return ""
    written = ""
    if line.startswith("echo "):
        told, _, line = line.partition(" | ")
        written = " ".join(shlex.split(told)[1:]) + "\n"
    lexer = shlex.shlex(line, posix=True, punctuation_chars="<>|&;")
    lexer.whitespace_split, lexer.commenters = True, "#"
    program, *arguments = list(lexer)
    assert program == "deepwire", f"do not know how to do: {line}"
    assert not {"<", ">", "|", "&", ";"} & set(arguments), f"do not know how to do: {line}"
    stream = io.TextIOWrapper(io.BytesIO(written.encode()), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", stream)
    capsys.readouterr()
    code = main(arguments)
    said = capsys.readouterr()
    assert code == 0, f"{line}\nended with {code} in {os.getcwd()}: {said.err[-1000:]}"  # noqa: PTH109
    return said.out
