from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from deepwire.cli.main import main
from deepwire.evaluation import texts

REFERENCE = [f"There are {number} birds on the old roof, and a cat ." for number in range(30)]
RAW = [line.replace(" .", ".") for line in REFERENCE]
GOOD = [line.replace("old", "new") if number % 3 == 0 else line for number, line in enumerate(RAW)]
BAD = [line.replace("birds on", "cats at") for line in RAW]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lines in {"ref.txt": RAW, "good.txt": GOOD, "bad.txt": BAD}.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def models(monkeypatch):
    """Models that know their translation; the settings of each call are kept."""
    asked = []
    outputs = {"good": GOOD, "bad": BAD, "runs/x": GOOD, "runs/x@avg5": GOOD}

    class Translator:
        languages, precision = None, ""

        def __init__(self, name, settings, _warn):
            self.name, self.settings = name, settings

        def translate(self, lines, **_):
            asked.append((self.name, lines, self.settings))
            return outputs[self.name]

    selected_target, target = texts.selected_target, texts.target_language
    monkeypatch.setattr(texts, "load_translator", Translator)
    monkeypatch.setattr(
        texts, "target_language", lambda name, way: "" if name in outputs else target(name, way)
    )
    monkeypatch.setattr(
        texts,
        "selected_target",
        lambda name, way: "" if name in outputs else selected_target(name, way),
    )
    require = texts.require_one_direction
    monkeypatch.setattr(
        texts, "require_one_direction", lambda names: require(name for name in names if name not in outputs)
    )
    return asked


def test_a_file_is_scored_and_signed(folder, capsys):
    assert main(["evaluate", "good.txt", "--reference", "ref.txt"]) == 0
    expected = BLEU()
    value = expected.corpus_score(GOOD, [RAW]).score
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["system", "BLEU"]
    assert lines[1].split() == ["good.txt", f"{value:.2f}"]
    assert lines[-1] == f"BLEU|{expected.get_signature()}"
    assert err == ""


def test_several_files_metrics_and_references_make_one_table(folder, capsys):
    Path("ref2.txt.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in BAD).encode()))
    command = ["evaluate", "good.txt", "bad.txt", "-r", "ref.txt", "-r", "ref2.txt.gz"]
    assert main([*command, "--metric", "bleu", "--metric", "chrf++", "--metric", "ter"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["system", "BLEU", "chrF2++", "TER"]
    assert lines[2].split() == ["bad.txt", "100.00", "100.00", "0.00"]
    assert all("nrefs:2" in line for line in lines[-3:])


def test_json_holds_unrounded_numbers_and_the_test(folder, capsys):
    command = ["evaluate", "good.txt", "bad.txt", "-r", "ref.txt", "--paired", "bootstrap"]
    assert main([*command, "--metric", "bleu", "--metric", "multi-bleu", "--samples", "50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lines"] == 30
    good, bad = found["systems"]
    assert good["baseline"]
    assert not bad["baseline"]
    assert good["scores"][0]["score"] == pytest.approx(BLEU().corpus_score(GOOD, [RAW]).score)
    comparison = bad["comparisons"][0]
    assert comparison["difference"] == pytest.approx(bad["scores"][0]["score"] - good["scores"][0]["score"])
    assert comparison["p_value"] == pytest.approx(2 / 51)
    assert comparison["difference_interval"]["high"] < 0
    assert [score["name"] for score in bad["scores"]] == ["BLEU", "multi-bleu"]


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
def test_the_baseline_is_the_first_or_the_named_one(folder, capsys, test):
    for extra, baseline in (([], "good.txt"), (["--baseline", "./bad.txt"], "bad.txt")):
        command = ["evaluate", "good.txt", "bad.txt", "-r", "ref.txt", "--paired", test, "--samples", "40"]
        assert main([*command, *extra]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:3]]
        assert [row[0] for row in rows] == ["good.txt", "bad.txt"]
        assert [row[0] for row in rows if "baseline" in row] == [baseline]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "nothing to evaluate"),
        (["good.txt"], 2, "there is no reference"),
        (["good.txt", "-r", "short.txt"], 3, "line counts differ: good.txt 30, short.txt 29"),
        (["good.txt", "-r", "absent.txt"], 3, "absent.txt: no such file"),
        (["good.txt", "-r", "ref.txt", "--metric", "blue"], 2, "unknown metric 'blue'"),
        (["good.txt", "-r", "ref.txt", "--paired", "bootstrap"], 2, "needs two or more systems"),
        (["good.txt", "bad.txt", "-r", "ref.txt", "--paired", "t"], 2, "unknown paired test 't'"),
        (["good.txt", "-r", "ref.txt", "--beam", "3"], 2, "beam is for models, and there is no --model"),
        (["good.txt", "-r", "ref.txt", "-o", "out.txt"], 2, "--output needs exactly one --model"),
        (["-", "-r", "-"], 2, "only one text can come from stdin"),
        (["--model", "absent"], 4, "absent: no such model"),
        (["--model", "good"], 2, "good is not a run directory"),
        (
            ["--model", "good", "-s", "ref.txt", "-r", "ref.txt", "-o", "./ref.txt"],
            2,
            "is a text that is read",
        ),
        (["short.txt", "--model", "good", "-s", "ref.txt", "-r", "ref.txt"], 3, "line counts differ"),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(folder, models, refused, arguments, code, message):
    Path("short.txt").write_text("".join(f"{line}\n" for line in RAW[1:]), encoding="utf-8")
    refused(code, message, "evaluate", *arguments)
    assert models == []


def test_models_translate_the_source_and_are_compared(folder, models, capsys):
    command = ["evaluate", "--model", "good", "--model", "bad", "--source", "ref.txt", "-r", "ref.txt"]
    assert main([*command, "--beam", "7", "--length-penalty", "0.5", "--paired", "bootstrap"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:3]]
    assert [row[0] for row in rows] == ["good", "bad"]
    assert [name for name, _, _ in models] == ["good", "bad"]
    assert models[0][1] == RAW
    assert models[0][2].decoding == {"beam": 7, "length_penalty": 0.5}
    assert (models[0][2].device, models[0][2].precision) == ("auto", "auto")


def test_scores_are_shown_when_the_translation_cannot_be_written(folder, models, monkeypatch, capsys):
    def full_disk(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    command = ["evaluate", "--model", "good", "-s", "ref.txt", "-r", "ref.txt", "--output", "out.txt"]
    assert main(command) == 6
    out, err = capsys.readouterr()
    assert out.startswith("system")
    assert "error: out.txt: " in err
    assert "No space left on device" in err
    assert not Path("out.txt").exists()


@pytest.mark.parametrize("name", ["runs/x", "runs/x@avg5"])
def test_a_run_alone_is_scored_on_the_test_set_of_its_run_file(folder, models, capsys, name):
    _write_run(folder / "runs/x", {"prefix": str(folder / "test")})
    (folder / "test.de").write_text("".join(f"Zeile {number}\n" for number in range(30)), encoding="utf-8")
    (folder / "test.en").write_text("".join(f"{line}\n" for line in RAW), encoding="utf-8")
    assert main(["evaluate", "--model", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["references"] == ["test (en)"]
    assert found["systems"][0]["scores"][0]["score"] == pytest.approx(BLEU().corpus_score(GOOD, [RAW]).score)
    assert models[0][1][2] == "Zeile 2"


def _write_run(folder, test):
    folder.mkdir(parents=True)
    data = {"source": "de", "target": "en", "train": [{"prefix": "train"}], "test": test}
    (folder / "config.resolved.json").write_text(json.dumps({"data": data}), encoding="utf-8")


def test_scores_of_files_need_no_torch(folder):
    """Loading it takes longer than the scores."""
    script = (
        "import sys; from deepwire.cli.main import main; "
        "sys.exit(main(['evaluate', 'good.txt', '-r', 'ref.txt']) or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
