"""Commands that give one text to several models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deepwire.api.evaluate import compare
from deepwire.api.model import load
from deepwire.cli.main import main
from deepwire.errors import UsageError

COMMANDS = {
    "analyze compare {models} {text}": 2,
    "analyze length {models} {text} --parts 1": 2,
    "analyze depth {models} {text}": 2,
    "analyze agreement {models} {text} --contrastive {answers}": 2,
    "evaluate --model {first} --model {second} {text}": 2,
    "translate {models} --input {source}": 4,
    "score {models} --source {source} --target {answers}": 4,
    "average {models} --output {folder}/mean": 4,
}
"""With the exit code of each."""


def test_models_of_different_directions_do_not_share_a_text(
    make_model, store, text: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = (("de", "en"), ("en", "de"))
    first, second = (store(make_model({}), "".join(way), source=way[0], target=way[1]) for way in ways)
    named = {"models": f"{first} {second}", "text": f"--source {text[0]} --reference {text[1]}"}
    named |= {"first": first, "second": second, "folder": str(tmp_path)}
    for command, code in COMMANDS.items():
        words = command.format(**named, source=text[0], answers=text[1])
        assert main(words.split()) == code, command
        err = capsys.readouterr().err
        assert re.search("de-en.*en-de|en-de.*de-en", err), err
    with pytest.raises(UsageError, match="one text"):
        compare({"a": load(first, "cpu"), "b": load(second, "cpu")}, text[1], source=text[0])
