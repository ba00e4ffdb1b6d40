"""`deepwire schema`, and shell completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepwire.cli.main import KEYS, main
from deepwire.config.section import described_keys
from deepwire.runfile import RunFile


def test_the_schema_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    assert main(["schema", "--output", str(tmp_path / "run.schema.json")]) == 0
    assert (tmp_path / "run.schema.json").read_text(encoding="utf-8") == printed
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert main(["schema", "--output", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink(), "nor are devices and pipes replaced"
    assert (tmp_path / "real").read_text(encoding="utf-8") == printed
    assert json.loads(printed)["properties"]["data"]["$ref"] == "#/$defs/DataConfig"


def completions(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("_DEEPWIRE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    return capsys.readouterr().out.split()


def test_the_shell_completes_commands_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completions("deepwire trans", monkeypatch, capsys) == ["translate", "translate-file"]
    assert completions("deepwire train --dry", monkeypatch, capsys) == ["--dry-run"]
    assert "gates" in completions("deepwire analyze ga", monkeypatch, capsys)


def test_the_shell_completes_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").touch()
    for line, expected in {
        "export x --format o": ["onnx"],
        "translate x --precision fp": ["fp32", "fp16"],
        "evaluate --metric chrf": ["chrf", "chrf++"],
        "train mi": ["mine.yaml"],
        "recipes show dem": ["demo"],
        "train demo training.max_u": ["training.max_updates="],
    }.items():
        assert completions(f"deepwire {line}", monkeypatch, capsys) == expected, line


def test_the_keys_that_errors_suggest_are_those_of_run_files() -> None:
    keys = dict.fromkeys(key for key, _ in described_keys(RunFile))
    assert KEYS.read_text(encoding="utf-8").splitlines() == list(keys), f"write into {KEYS}:\n" + "\n".join(
        keys
    )


def test_completion_does_not_wait_for_torch() -> None:
    code = (
        "import sys, contextlib; from deepwire.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main([])\n"
        "sys.exit('torch' in sys.modules)"
    )
    line = {"COMP_WORDS": "deepwire train --dry", "COMP_CWORD": "2"}
    names = os.environ | line | {"_DEEPWIRE_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=names, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "--dry-run\n"), done.stderr
