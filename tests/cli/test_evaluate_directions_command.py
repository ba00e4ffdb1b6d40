"""``deepwire evaluate-directions`` from stored translations and from models, on text in three languages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from deepwire.data.languages import Direction
from deepwire.evaluation.directions import _right
from deepwire.evaluation.texts import Text

NUMBERS = range(30)
TEXT = {
    "en": [f"There are {number} birds on the old roof, and a cat." for number in NUMBERS],
    "de": [f"Auf dem alten Dach sind {number} Vögel, und eine Katze." for number in NUMBERS],
    "fr": [f"Il y a {number} oiseaux sur le vieux toit, et un chat." for number in NUMBERS],
}
LOSSES = {"en": " old", "de": " alten", "fr": " vieux"}
DIRECTIONS = ("en-de", "de-en", "en-fr", "fr-en")


def write(path: Path | str, lines: list[str]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def damaged(language: str, every: int) -> list[str]:
    word = LOSSES[language]
    return [
        line.replace(word, "") if place % every == 0 else line for place, line in enumerate(TEXT[language])
    ]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for language, lines in TEXT.items():
        write(f"test.{language}", lines)
    for name, every in (("good", 10), ("bad", 2)):
        for direction in DIRECTIONS:
            target = direction[-2:]
            write(f"{name}/{direction}.hyp", damaged(target, every))
    return tmp_path


@pytest.fixture
def run(command):
    """Streams of a command that is done."""

    def ended(*arguments: str) -> tuple[str, str]:
        code, out, err = command("evaluate-directions", *arguments)
        assert code == 0, err
        return out, err

    return ended


def test_two_folders_make_the_table(run):
    arguments = ("good", "bad", "--test", "test", "--samples", "100", "--group", "romance=fr")
    out, err = run(*arguments, "--json")
    found = json.loads(out)
    assert [(each["name"], each["directions"]) for each in found["averages"]] == [
        ("all trained", ["de-en", "en-de", "en-fr", "fr-en"]),
        ("out of en", ["en-de", "en-fr"]),
        ("into en", ["de-en", "fr-en"]),
        ("romance", ["en-fr", "fr-en"]),
    ]
    row = found["directions"][1]
    expected = BLEU().corpus_score(damaged("de", 10), [TEXT["de"]]).score
    assert row["direction"] == "en-de"
    assert row["scores"][0]["score"] == pytest.approx(expected)
    assert row["comparisons"][0]["p_value"] == pytest.approx(2 / 101)
    average = found["averages"][1]
    assert average["win_ratio"] == 100
    assert (average["significantly_better"], average["significantly_worse"]) == (2, 0)
    assert "en-de: 30 lines, BLEU" in err
    out, _ = run(*arguments)
    line = next(line for line in out.splitlines() if line.startswith("en-de"))
    assert line.split()[:3] == ["en-de", "30", f"{expected:.2f}"]


def test_a_pattern_names_a_file_of_each_direction(run):
    out, _ = run("good/{source}-{target}.hyp", "--test", "test", "--directions", "en-de", "--json")
    (row,) = json.loads(out)["directions"]
    assert row["direction"] == "en-de"


def test_zero_shot_directions_stand_apart_with_their_language():
    reference, english = Text("reference", TEXT["fr"]), Text("ours", TEXT["fr"][:20] + TEXT["en"][20:])
    languages = ("de", "en", "fr")
    assert _right(reference, Direction("de", "fr"), languages) == 1
    assert _right(english, Direction("de", "fr"), languages) == pytest.approx(20 / 30)


def test_opus_100_is_read_as_published(run):
    for pair in ("de-en", "en-fr"):
        for language in pair.split("-"):
            write(f"opus/supervised/{pair}/opus.{pair}-test.{language}", TEXT[language])
    for language in ("de", "fr"):
        write(f"opus/zero-shot/de-fr/opus.de-fr-test.{language}", TEXT[language])
    write("good/de-fr.hyp", TEXT["fr"])
    out, _ = run("good", "--test", "opus", "--json")
    rows = {row["direction"]: row for row in json.loads(out)["directions"]}
    assert set(rows) == {*DIRECTIONS, "de-fr"}
    assert rows["de-fr"]["scores"][0]["score"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["good", "--test", "test", "--directions", "en-xx"], 2, "no translation en-xx.hyp"),
        (["good", "--test", "test", "--directions", "en"], 2, "'en' is not a direction"),
        (["absent", "--test", "test"], 4, "absent: no such model"),
        (["good", "absent", "--test", "test"], 4, "absent: no such model"),
        (["good", "--test", "test", "--paired", "t"], 2, "unknown paired test 't'"),
        (["good", "--test", "test", "--metric", "meteor"], 2, "unknown metric 'meteor'"),
        (["good", "--test", "absent"], 3, "no test set for any direction"),
        (["good"], 2, "good is not a run directory"),
        (["good/{direction}.hyp", "--test", "test"], 2, "does not say its directions"),
        (["good/{pair}.hyp", "--test", "test"], 2, "unknown field"),
    ],
)
def test_mistakes_are_named(refused, arguments, code, message):
    refused(code, message, "evaluate-directions", *arguments)
