"""``deepwire distill`` and ``deepwire back-translate`` with a model of random weights."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from pathlib import Path

import pytest
import torch
from forked import fork
from translating_processes import die_in_translation

from deepwire.checkpoint.store import save_model
from deepwire.cli.main import main
from deepwire.data.text.files import find_text, read_lines
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

WORDS = [f"w{number}" for number in range(40)]
SHAPE = {"d_model": 16, "heads": 2, "feed_forward": 32, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
SHAPE |= {"initialization": "lipschitz"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    words = " ".join(WORDS)
    vocabularies = Vocabularies.learn_from_blocks(WordsConfig(joint=True), [[Pair(1, words, words, 0)]])
    torch.manual_seed(1)
    built = build_model(ModelConfig.model_validate(SHAPE), vocabularies.source.size, vocabularies.target.size)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(2)
    folder = tmp_path_factory.mktemp("models") / "teacher"
    limits = {"max_length_ratio": 1, "max_length_extra": 2}
    save_model(
        folder, built, vocabularies, {"source": "de", "target": "en", "decoding": {**limits, "beam": 2}}
    )
    return str(folder)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    generator = random.Random(1)
    lines = [" ".join(generator.choices(WORDS, k=generator.randint(1, 9))) for _ in range(60)]
    lines[7] = lines[33] = ""
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def texts(prefix: str) -> dict[str, list[object]]:
    return {language: list(read_lines(find_text(Path(prefix), language))) for language in ("de", "en")}


def test_distilled_text_is_what_translate_gives(
    model: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["distill", model, "--source", "text", "--output", "made", "window=16"]) == 0
    shown = capsys.readouterr()
    assert "60 lines" in shown.err
    assert "next: data.train=made" in shown.out
    found = texts("made")
    assert found["de"] == (folder / "text").read_text().splitlines()
    assert main(["translate", model, "-i", "text", "-q"]) == 0
    assert found["en"] == capsys.readouterr().out.splitlines()
    record = json.loads((folder / "made.json").read_text())
    assert record["counts"] == {"lines": 60}
    assert record["job"]["command"] == "deepwire distill"
    assert list(record["job"]["models"]) == [model]
    assert record["job"]["decoding"]["beam"] == 2
    assert sorted(path.name for path in folder.iterdir()) == ["made.de", "made.en", "made.json", "text"]


def test_back_translation_is_drawn_and_tagged_and_repeatable(model: str, folder: Path) -> None:
    drawn = ["back-translate", model, "-i", "text", "--sample", "sampling.top_k=10", "--tag", "<BT>", "-q"]
    drawn += ["--precision", "fp32"]  # bfloat16 may round otherwise in batches of another size
    assert main([*drawn, "-o", "one", "window=7"]) == 0
    assert main([*drawn, "-o", "two", "window=60"]) == 0
    assert main([*drawn, "-o", "other", "--seed", "2"]) == 0
    assert texts("one") == texts("two") != texts("other")
    lines = texts("one")["en"]
    assert all(str(line).startswith("<BT> ") for number, line in enumerate(lines) if number not in (7, 33))
    assert lines[7] == lines[33] == ""
    record = json.loads((folder / "one.json").read_text())["job"]
    assert (record["command"], record["tag"]) == ("deepwire back-translate", "<BT>")
    assert record["decoding"]["sampling"]["top_k"] == 10


def kill_after_parts(arguments: list[str], count: int) -> None:
    """Run a command in a process of its own, which is killed in the part after so many."""

    def work() -> int:
        die_in_translation(count + 1)(0)
        return main(arguments)

    assert os.waitpid(fork(work), 0)[1] == signal.SIGKILL


def test_killed_and_called_again_it_makes_the_same_text(
    model: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (folder / "text").read_text() * 2
    (folder / "text").write_text(lines)
    command = ["back-translate", model, "--input", "text", "--sample", "window=4"]
    assert main([*command, "--output", "whole.gz"]) == 0
    broken = [*command, "--output", "broken.gz"]
    parts = folder / "broken.en.gz.parts"
    for count, sum_of_both in ((3, 3), (6, 9)):
        kill_after_parts(broken, count)
        assert len(list(parts.glob("0*-*"))) == sum_of_both
    assert not (folder / "broken.en.gz").exists()
    assert main(broken) == 0
    for name in ("de.gz", "en.gz"):
        assert (folder / f"broken.{name}").read_bytes() == (folder / f"whole.{name}").read_bytes()
    records = [json.loads((folder / f"{name}.json").read_text()) for name in ("broken", "whole")]
    assert records[0] == records[1]
    capsys.readouterr()
    assert main(broken) == 0
    assert "nothing to do: broken.en.gz is there, 120 lines" in capsys.readouterr().err


def test_killed_while_it_deletes_its_parts_it_leaves_them_to_the_next_call(model: str, folder: Path) -> None:
    command = ["distill", model, "-i", "text", "-o", "made", "window=4"]

    def work() -> int:
        shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        return main(command)

    assert os.waitpid(fork(work), 0)[1] == signal.SIGKILL
    assert main(command) == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["made.de", "made.en", "made.json", "text"]


def test_parts_of_another_job_are_not_used(
    model: str, folder: Path, capsys: pytest.CaptureFixture[str], refused
) -> None:
    command = ["distill", model, "-i", "text", "-o", "made", "window=2"]
    kill_after_parts(command, 2)
    assert main([*command, "--beam", "3"]) == 2
    error = capsys.readouterr().err
    assert "parts of another job, which differs in decoding" in error
    assert main(command) == 0
    for changed in ([*command, "--beam", "3"], ["back-translate", *command[1:]]):
        refused(2, "exists already", *changed)


def test_it_never_writes_over_a_text(model: str, folder: Path, refused) -> None:
    (folder / "train.de").write_text("w1 w2\n")
    refused(
        2, "train.de: is a text that is read", "distill", model, "--source", "train.de", "--output", "train"
    )
    assert (folder / "train.de").read_text() == "w1 w2\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["distill", "MODEL", "-i", "none", "-o", "x"], 3, "none: no such file"),
        (["distill", "MODEL", "-i", "text", "-o", "x", "window=9999999"], 2, "window: must be at most"),
        (["distill", "MODEL", "-i", "-", "-o", "x"], 2, "no stdin (-)"),
        (["distill", "MODEL", "-i", "text", "-o", "no/x"], 2, "the folder no does not exist"),
        (["distill", "no-model", "-i", "text", "-o", "x"], 4, "no such model"),
        (["back-translate", "MODEL", "-i", "text"], 2, "--output"),
        (
            ["back-translate", "MODEL", "-i", "text", "-o", "x", "--from", "en", "--to", "de"],
            2,
            "name both languages",
        ),
        (
            ["back-translate", "MODEL", "-i", "text", "-o", "x", "--tag", "a\nb"],
            2,
            "--tag: 'a\\nb' is no word",
        ),
    ],
)
def test_mistakes_are_one_line(
    model: str, folder: Path, refused, arguments: list[str], code: int, message: str
) -> None:
    refused(code, message, *(model if one == "MODEL" else one for one in arguments))
    assert [path.name for path in folder.iterdir()] == ["text"]


def test_a_model_of_several_languages_is_told_which(
    folder: Path, capsys: pytest.CaptureFixture[str], refused
) -> None:
    words = " ".join(WORDS)
    vocabularies = Vocabularies.learn_from_blocks(WordsConfig(joint=True), [[Pair(1, words, words, 0)]])
    size = vocabularies.source.size + 3
    torch.manual_seed(1)
    built = build_model(ModelConfig.model_validate(SHAPE), size, size)
    languages = {"languages": ["de", "en", "fr"], "directions": ["de-en", "en-fr", "fr-en"], "tag": "source"}
    limits = {"max_length_ratio": 1, "max_length_extra": 2}
    save_model(folder / "many", built, vocabularies, {**languages, "decoding": {**limits, "beam": 1}})
    command = ["distill", "many", "-i", "text", "-o", "made", "-q"]
    assert main([*command, "--from", "en", "--to", "fr"]) == 0
    assert main(["translate", "many", "-i", "text", "--to", "fr", "-q"]) == 0
    assert (folder / "made.fr").read_text() == capsys.readouterr().out
    assert main([*command[:-2], "alone", "-q", "--from", "de"]) == 0, "only into English"
    assert (folder / "alone.en").read_text() != (folder / "made.fr").read_text()
    assert main([*command[:-2], "both", "-q"]) == 2
    said = capsys.readouterr().err
    assert "name both languages: --from de --to en" in said
    assert "it has de-en, en-fr, fr-en" in said
    refused(2, "does not know the language 'xx'", *command[:-2], "other", "-q", "--from", "en", "--to", "xx")
