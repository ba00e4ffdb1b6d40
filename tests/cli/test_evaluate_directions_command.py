"""``deepwire evaluate-directions`` from stored translations and from models, on text in three languages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from deepwire.cli.main import main

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
        write(f"train.{language}", lines * 3)
    for name, every in (("good", 10), ("bad", 2)):
        for direction in DIRECTIONS:
            target = direction[-2:]
            write(f"{name}/{direction}.hyp", damaged(target, every))
    return tmp_path


def run(capsys, *arguments: str, code: int = 0) -> tuple[str, str]:
    found = main(["evaluate-directions", *arguments])
    out, err = capsys.readouterr()
    assert found == code, err
    return out, err


def test_two_folders_make_the_table(capsys):
    out, err = run(capsys, "good", "bad", "--test", "test", "--samples", "100", "--json")
    found = json.loads(out)
    assert [block["title"] for block in found["blocks"]] == ["All trained directions", "Out of en", "Into en"]
    first = found["blocks"][1]["directions"][0]
    expected = BLEU().corpus_score(damaged("de", 10), [TEXT["de"]]).score
    assert first["direction"] == "en-de"
    assert first["scores"][0]["score"] == pytest.approx(expected)
    assert first["comparisons"][0]["p_value"] == pytest.approx(2 / 101)
    average = found["blocks"][1]["averages"][0]
    assert average["win_ratio"] == 100
    assert average["significantly_better"] == average["better_after_holm"] == 2
    assert "en-de: 30 lines, BLEU" in err


@pytest.mark.parametrize("place", ["test", "./test", "te{pair}"])
def test_a_page_is_not_written_over_a_test_set(capsys, place):
    before = Path("test.en").read_bytes()
    assert main(["evaluate-directions", "good", "--test", place, "--html", "test.en"]) == 2
    assert "test.en: is a text that is read" in capsys.readouterr().err
    assert Path("test.en").read_bytes() == before


def test_training_sizes_make_resource_groups(capsys):
    Path("sizes.json").write_text('{"de": 1000, "fr": 10}')
    out, _ = run(
        capsys, "good", "--test", "test", "--sizes", "sizes.json", "--high", "500", "--low", "100", "--json"
    )
    averages = json.loads(out)["blocks"][1]["averages"]
    assert {one["name"]: one["directions"] for one in averages} == {
        "all": ["en-de", "en-fr"],
        "high (from 500 pairs)": ["en-de"],
        "low (below 100 pairs)": ["en-fr"],
    }


def test_zero_shot_directions_stand_apart_with_their_language(capsys):
    write("good/de-fr.hyp", TEXT["fr"][:20] + TEXT["en"][20:])
    out, _ = run(
        capsys,
        "good",
        "--test",
        "test",
        "--trained",
        ",".join(DIRECTIONS),
        "--language-text",
        "train",
        "--json",
    )
    found = json.loads(out)["blocks"][-1]
    assert found["title"] == "Zero-shot: directions that were not trained"
    (row,) = found["directions"]
    assert row["direction"] == "de-fr"
    assert row["right_language"] == pytest.approx(20 / 30)
    assert row["reference_right_language"] == 1


def test_opus_100_is_read_as_published(capsys):
    for pair in ("de-en", "en-fr"):
        for language in pair.split("-"):
            write(f"opus/supervised/{pair}/opus.{pair}-test.{language}", TEXT[language])
    for language in ("de", "fr"):
        write(f"opus/zero-shot/de-fr/opus.de-fr-test.{language}", TEXT[language])
    write("good/de-fr.hyp", TEXT["fr"])
    out, _ = run(capsys, "good", "--test", "opus", "--json")
    rows = {row["direction"]: row for block in json.loads(out)["blocks"] for row in block["directions"]}
    assert set(rows) == {*DIRECTIONS, "de-fr"}
    assert rows["de-fr"]["scores"][0]["score"] == pytest.approx(100)


def test_its_json_can_stand_in_a_report_and_its_plots_are_drawn(capsys):
    pytest.importorskip("matplotlib")
    out, _ = run(capsys, "good", "bad", "--test", "test", "--samples", "20", "--json", "--plots", "plots")
    Path("table.json").write_text(out)
    assert main(["analyze", "report", "table.json", "--html", "report.html"]) == 0
    assert capsys.readouterr().out.startswith("good against bad on test\n")
    assert Path("report.html").read_text(encoding="utf-8").count("<svg") == 2
    names = [
        f"directions-{name}.{form}" for name in ("into-en", "out-of-en") for form in ("pdf", "png", "svg")
    ]
    assert sorted(path.name for path in Path("plots").iterdir()) == names


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["good", "--test", "test", "--directions", "en-xx"], 2, "no translation en-xx.hyp"),
        (["good", "--test", "test", "--directions", "en"], 2, "'en' is not a direction"),
        (["good", "--test", "test", "--directions", "de-fr"], 2, "no translation de-fr.hyp"),
        (["absent", "--test", "test"], 4, "absent: no such model"),
        (["good", "absent", "--test", "test"], 4, "absent: no such model"),
        (["good", "bad", "--test", "test", "--paired", "t"], 2, "unknown paired test 't'"),
        (["good", "--test", "test", "--paired", "t"], 2, "unknown paired test 't'"),
        (["good", "--test", "test", "--seed", "3"], 2, "--seed is for tests against a BASELINE"),
        (["good", "bad", "--test", "test", "--beam", "3"], 2, "are for models"),
        (["good", "bad", "--test", "test", "--html", "bad/en-de.hyp"], 2, "is read, and would be replaced"),
        (["good", "--test", "test", "--metric", "meteor"], 2, "unknown metric 'meteor'"),
        (["good", "--test", "test", "--tokenize", "de=x"], 2, "unknown tokenizer 'x'"),
        (
            ["good", "--test", "test", "--html", "no/such.html"],
            2,
            "no/such.html: the folder no does not exist",
        ),
        (["good", "--test", "test", "--sizes", "absent.json"], 3, "absent.json: cannot read"),
        (["good", "--test", "test", "--centre", "it"], 2, "--centre it: no direction of the table has it"),
        (["good", "--test", "test", "--low", "9", "--high", "3"], 2, "--low 9 is above --high 3"),
        (["good", "--test", "test", "--language-text", "absent"], 2, "no text to learn"),
        (["good"], 2, "good is not a run directory"),
        (["good/{direction}.hyp", "--test", "test"], 2, "does not say which directions it has"),
    ],
)
def test_mistakes_are_named(capsys, arguments, code, message):
    _, err = run(capsys, *arguments, code=code)
    assert message in err
    assert err.startswith("error: ")
    assert "Traceback" not in err
