"""Metrics of other programs: what they are given, what they may answer, and what is said where they fail."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import deepwire
from deepwire.cli.main import main
from deepwire.errors import DataError, UsageError
from deepwire.evaluation.metric_command import MetricCommand, read_scores

# Counts the words that a line has in common with its reference; what it reads and writes follows its options.
PROGRAM = """
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if "-j" in options:
    rows = [json.loads(line) for line in open(options["-j"])]
else:
    names = {"-t": "hypothesis", "-r": "reference", "-s": "source"}
    texts = {name: open(options[key]).read() for key, name in names.items() if key in options}
    files = {name: text.split("\\n")[:-1] for name, text in texts.items()}
    rows = [dict(zip(files, row)) for row in zip(*files.values())]
scores = [len(set(row["hypothesis"].split()) & set(row["reference"].split())) / 4 for row in rows]
print("working", file=sys.stderr)
if "-o" in options:
    comet = {options["-t"]: [{"src": row.get("source"), "COMET": score} for row, score in zip(rows, scores)]}
    open(options["-o"], "w").write(json.dumps(comet))
else:
    print("\\n".join(map(str, scores)))
"""
BASE, NEW, REFERENCE = "a b x\nc x x\ne f g\n", "a b c\nc d x\ne f g\n", "a b c d\nc d e f\ne f g h\n"


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The command without its files; texts lie in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my program.py").write_text(PROGRAM)
    for name, text in (("base", BASE), ("new", NEW), ("reference", REFERENCE), ("source", "1\n2\n3\n")):
        (tmp_path / name).write_text(text)
    return f"{sys.executable} 'my program.py'"


@pytest.mark.parametrize(
    "files",
    [
        "-t {hypothesis} -r {reference}",
        "-t {hypothesis} -r {reference} -s {source} -o {scores}",
        "-j {jsonl}",
    ],
)
def test_systems_are_scored_and_compared(words: str, files: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", "base", "new", "-r", "reference", "--metric-command", f"shared={words} {files}"]
    command += ["--source", "source"] if "source" in files or "jsonl" in files else []
    assert main([*command, "--paired", "randomization", "--metric", "chrf", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["systems"]
    assert [score["name"] for score in second["scores"]] == ["chrF2", "shared"]
    assert first["scores"][1]["score"] == pytest.approx((2 + 1 + 3) / 12)
    assert second["scores"][1]["score"] == pytest.approx((3 + 2 + 3) / 12)
    assert second["scores"][1]["signature"] == f"nrefs:1|command:{words} {files}"
    assert second["comparisons"][1]["difference"] == pytest.approx(2 / 12)
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "new     0.6667" in shown
    assert "BLEU" not in shown


def test_from_python(words: str) -> None:
    metric = MetricCommand("shared", f"{words} -t {{hypothesis}} -r {{reference}} -s {{source}}")
    found = deepwire.evaluate(
        NEW.splitlines(), REFERENCE.splitlines(), source=["1", "2", "3"], metrics=[metric, "chrf"]
    )
    assert list(found) == ["shared", "chrf"]
    assert found["shared"].value == pytest.approx(8 / 12)
    with pytest.raises(UsageError, match="shared reads the source, too"):
        deepwire.evaluate(NEW.splitlines(), REFERENCE.splitlines(), metrics=metric)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("0.5\n1\n", [0.5, 1.0]),
        ("[0.5, 1]", [0.5, 1.0]),
        ('{"prediction": 0.5, "hypothesis": "a"}\n{"prediction": 1}\n', [0.5, 1.0]),
        ('{"hyp.txt": [{"mt": "a", "COMET": 0.5}]}', [0.5]),
        ('[{"score": 0.5, "length": 3}]', [0.5]),
        ("0.5\n", [0.5]),
        ("", []),
    ],
)
def test_scores_have_several_forms(text: str, scores: list[float]) -> None:
    assert read_scores(text, "m") == scores


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5\nhalf\n", "metric m: its scores"),
        ('[{"a": 1, "b": 2}]', "metric m: null is no score"),
        ("[true]", "metric m: true is no score"),
        ('["0.5"]', 'metric m: "0.5" is no score'),
    ],
)
def test_other_answers_are_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_scores(text, "m")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("m", 2, "--metric-command 'm' is not NAME=COMMAND"),
        ("m=program {hypothesis} {sources}", 2, "metric m: there is no file {sources}"),
        ("m=no-such-program {hypothesis}", 2, "metric m: cannot start 'no-such-program'"),
        ("m=echo {hypothesis}", 3, "metric m: its scores"),
        ("m=printf NaN%.0s {hypothesis}", 3, "metric m: a score is nan"),
        ("m=program {hypothesis} {source}", 2, "m reads the source, too"),
    ],
)
def test_mistakes_are_one_line(
    words: str, capsys: pytest.CaptureFixture[str], command: str, code: int, said: str
) -> None:
    assert main(["evaluate", "base", "-r", "reference", "--metric-command", command]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("error: ") == 1
