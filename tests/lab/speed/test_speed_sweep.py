"""Speed and memory: the work that is measured is the work that is said, and every axis comes out."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
import torch

from deepwire.cli.main import main
from deepwire.decoding.search import generate
from deepwire.errors import UsageError
from deepwire.evaluation.texts import SearchSettings, Text
from deepwire.lab.speed import speed_sweep, text_speed
from deepwire.lab.speed.speed_sweep import MeasuredArchitecture, Workload, extra_memory, sweep
from deepwire.lab.speed.text_speed import Program, measure_text
from deepwire.lab.subject.model_and_text import ParallelText, read_pairs
from deepwire.lab.subject.scorer import Scorer, TimedTranslation
from deepwire.model.config import ModelConfig

CPU = torch.device("cpu")
TINY = MeasuredArchitecture(
    "tiny",
    ModelConfig.model_validate(
        {
            "d_model": 16,
            "heads": 2,
            "feed_forward": 32,
            "encoder": {"layers": 1, "connection": "depth_lstm"},
            "decoder": {"layers": 1, "mixer": "average_attention"},
        }
    ),
    40,
    40,
)


def quiet(_text: str) -> None: ...


@pytest.mark.parametrize("beam", [1, 3])
def test_every_translation_has_exactly_the_length_asked_for(monkeypatch, beam: int) -> None:
    found = []

    def watched(*arguments):
        found.extend(generate(*arguments))
        return found

    monkeypatch.setattr(speed_sweep, "generate", watched)
    base = Workload(batch=3, beam=beam, length=7)
    sweep([TINY], "decoding", "length", [5, 9], base, rounds=1, device=CPU, tell=quiet)
    lengths = [len(hypotheses[0].ids) for hypotheses in found]
    assert lengths == [5] * 9 + [9] * 9  # to warm up, for the memory, and one round


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a process")
def test_memory_is_what_the_work_takes_at_its_peak() -> None:
    def work() -> None:
        block = torch.ones(16 << 20)  # 64 MiB
        del block

    found = extra_memory(work, CPU)
    if found is None:
        pytest.skip("this system does not let a process reset its peak")
    assert 60 << 20 < found < 80 << 20
    again = extra_memory(lambda: torch.ones(4 << 20).sum(), CPU)
    assert again is not None
    assert again < 30 << 20


@pytest.mark.slow
def test_command_on_a_run_file_and_a_run(run: str, corpus: Path, capsys) -> None:
    file = str(corpus / "small.yaml")
    axes = ["--batch", "2", "--beam", "1,2", "--length", "3", "--depth", "2"]
    options = ["--base", "2,2,4", "--rounds", "1", "--device", "cpu", "--json"]
    assert main(["analyze", "speed", run, file, *axes, *options]) == 0
    found = json.loads(capsys.readouterr().out)["findings"][0]
    titles = {table["title"]: table["rows"] for table in found["tables"]}
    assert list(titles) == [
        "Training against batch",
        "Training against length",
        "Training against depth",
        "Decoding against batch",
        "Decoding against beam",
        "Decoding against length",
        "Decoding against depth",
    ]
    assert [row[:2] for row in titles["Decoding against beam"]] == [
        [run, 1],
        [file, 1],
        [run, 2],
        [file, 2],
    ]
    assert len(found["provenance"]["models"]) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "0"], "batch must be at least 1"),
        (["--base", "1,2"], "--base: must be batch, beam and length"),
        (["--mode", "sleeping"], "is not one of"),
        (["--mode", "text"], "is not trained, so it cannot translate a text"),
        (["--beside", "x=cat"], "is not trained, so it cannot translate a text"),
        (["--batch", "", "--beam", "", "--length", "", "--depth", ""], "no axis to measure"),
    ],
)
def test_wrong_options_are_one_line(capsys, options, message) -> None:
    assert main(["analyze", "speed", "multi30k/aan-tiny", "--device", "cpu", *options]) == 2
    assert message in capsys.readouterr().err


UPPER = "import sys; print(*(line.strip().upper() for line in sys.stdin), sep='\\n')"


def beside(name: str, code: str) -> str:
    """An option that runs a line of Python."""
    return f"{name}={shlex.join([sys.executable, '-c', code])}"


def test_programs_are_timed_beside_models_on_the_same_sentences(run: str, capsys) -> None:
    options = ["--mode", "text", "--sentences", "4", "--rounds", "1", "--device", "cpu", "--json"]
    assert main(["analyze", "speed", run, "--beside", beside("upper", UPPER), *options]) == 0
    found = json.loads(capsys.readouterr().out)["findings"][0]
    (table,) = found["tables"]
    model, program = (
        dict(zip((one["name"] for one in table["columns"]), row, strict=True)) for row in table["rows"]
    )
    assert (model["subject"], program["subject"]) == (run, "upper (command)")
    words = [len(line.split()) for line in read_pairs(run, limit=4).source.lines]
    assert program["words out"] == sum(words)  # it read the text, and all of it
    assert program["BLEU"] < 10.0
    assert found["figures"][0]["categories"] == [run, "upper (command)"]
    assert any("Command beside: upper=" in note for note in found["notes"])


def test_what_happens_once_is_subtracted(monkeypatch, run: str) -> None:
    text = Text("s", ["a b"] * 21)
    scorer = Scorer(run, ParallelText(text, text), SearchSettings({"beam": 1}, "cpu"), quiet)
    monkeypatch.setattr(Scorer, "translate", lambda *given, **_: TimedTranslation(list(given[2]), 0.0))
    monkeypatch.setattr(Program, "translate", lambda _self, lines: list(lines))
    seconds = iter([0.5, 4.5, 10.5, 20.5, 0.6, 4.6, 10.6, 20.4])  # one sentence and all, in two rounds
    monkeypatch.setattr(text_speed, "_timed", lambda work, lines: (next(seconds), work(lines)))
    model, program = measure_text([scorer], [Program("slow", ("slow",))], rounds=2, tell=quiet)
    assert model.sentences_per_second == 20 / 4.0
    assert program.sentences_per_second == pytest.approx(20 / 9.9)
    assert program.length_per_second == pytest.approx(40 / 9.9)
    assert (model.clear, program.clear) == (True, False)
    notes = " ".join(text_speed.text_notes([model, program], []))
    assert "too short for slow (command)" in notes


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("nothing", "is not NAME=COMMAND"),
        ("a='b", "No closing quotation"),
        ("a=no-such-program-here", "no-such-program-here: No such file"),
        (
            beside("a", "import sys; sys.exit('cannot read the model')"),
            "exit status 1): cannot read the model",
        ),
        (beside("a", "print('Ready.')"), "gave 1 lines for 2"),
        (beside("a", "import os; os.kill(os.getpid(), 9)"), "signal 9"),
    ],
    ids=["form", "quote", "missing", "fails", "lines", "killed"],
)
def test_a_program_that_fails_is_one_line(option: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Program.parse(option).translate(["ein Hund", "zwei"])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
