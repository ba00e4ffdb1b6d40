from __future__ import annotations

import json
from pathlib import Path

import pytest
from forked import deepwire_command

from deepwire.cli.main import main


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.de").write_text("Ein Hund.\nZwei Hunde.\n\nEin\tHund\\.\nEin Hund.\n")
    (tmp_path / "train.en").write_text("A dog.\nTwo dogs.\nNothing.\n\nA dog.\n")
    (tmp_path / "run.yaml").write_text("data: {source: de, target: en, train: train}\n")
    return tmp_path


def test_the_report_of_two_files(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "--source", "train.de", "--target", "train.en"]) == 0
    shown = capsys.readouterr()
    assert "train: 2 of 5 pairs kept (40.00%)" in shown.out
    assert "dropped 2 one_side_empty" in shown.out
    assert "lines 3, 4" in shown.out
    assert "\x1b" not in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("arguments", [["run.yaml"], ["--source", "train.de", "--target", "train.en"]])
def test_the_json_report(corpus: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(["data", "check", "--json", *arguments]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    report = json.loads(line)["train"]
    assert (report["pairs"], report["kept"]) == (5, 2)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--source", "train.de", "--target", "short.en"], 3, "line counts differ: train.de 5, short.en 1"),
        (["--source", "none.de", "--target", "train.en"], 3, "none.de: no such file"),
        (["--source", "empty", "--target", "train.en"], 3, "empty: is empty"),
        (["--source", "bad", "--target", "short.en"], 3, "bad:1:2: not UTF-8 (byte 0xff)"),
        (["run.yaml", "data.train={tsv: train.de}"], 3, "train.de:1: 1 column where 2 are expected"),
        (["run.yaml", "data.train={jsonl: train.de}"], 3, "train.de:1: not JSON"),
        ([], 2, "nothing to check"),
        (["run.yaml", "--source", "train.de"], 2, "without a run file"),
        (["run.yaml", "data.train=none/train"], 3, "no such file (also tried .gz, .zst, .xz)"),
        (
            ["run.yaml", "data.train={prefix: train, alignments: links}"],
            3,
            "links: 2 lines, but the text has 5",
        ),
        (["missing.yaml"], 2, "missing.yaml: no such file"),
    ],
)
def test_wrong_input_is_one_clear_line(
    corpus: Path, refused, arguments: list[str], code: int, said: str
) -> None:
    (corpus / "short.en").write_text("A dog.\n")
    (corpus / "empty").write_text("")
    (corpus / "links").write_text("0-0\n1-1\n")
    (corpus / "bad").write_bytes(b"a\xff\n")
    refused(code, said, "data", "check", *arguments)


def test_stdin_is_read(corpus: Path) -> None:
    lines = "Ein Hund.\tA dog.\nZwei Hunde.\tTwo dogs.\n"
    done = deepwire_command("data", "check", "run.yaml", "data.train={tsv: '-'}", cwd=corpus, stdin=lines)
    assert done.stdout.startswith("train: 2 of 2 pairs kept")
    assert (done.returncode, done.stderr) == (0, "")


def test_download_prints_digests_and_wants_as_many_as_addresses(
    corpus: Path, capsys: pytest.CaptureFixture[str], refused
) -> None:
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    (corpus / "there").write_bytes(b"")
    assert main(["data", "download", "http://127.0.0.1:1/there", "--sha256", digest]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{digest}  there\n"
    assert shown.err == "there is here already\n"
    refused(
        2, "2 addresses but 1 digest\n", "data", "download", "http://h/a", "http://h/b", "--sha256", digest
    )
    refused(
        2,
        "x.gz: several addresses have this file name",
        "data",
        "download",
        "http://h/a/x.gz",
        "http://h/b/x.gz",
    )
    refused(
        1, "hint: is there a network connection?", "data", "download", "http://127.0.0.1:1/a", "--to", "new"
    )
