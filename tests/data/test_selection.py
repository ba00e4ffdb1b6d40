from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepwire.data.data_config import DataConfig
from deepwire.data.filters import REASON_IDS
from deepwire.data.selection import CheckReport, check_corpora, report_lines
from deepwire.data.text.pairs import PairBlock, Texts

SENTENCE = "Ein Mann mit einem Hund geht heute über die lange Straße nach Hause"
GERMAN = SENTENCE.split()


def sentences(words: list[str], count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(words, k=3 + number % 17)) for number in range(count)]


def report_of(
    pairs: list[tuple[str, str]], labels: tuple[str, str] = ("de", "en"), **settings: Any
) -> CheckReport:
    report = CheckReport({0: "corpus"}, labels, **settings)
    sides = (Texts.of([pair[side].encode() for pair in pairs]) for side in (0, 1))
    report.keep(PairBlock(0, np.arange(1, len(pairs) + 1), *sides))
    return report


def write(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_counts_reasons_and_first_lines(tmp_path: Path) -> None:
    source, target = sentences(GERMAN, 40), sentences(GERMAN, 40, 2)
    for line in range(10):
        source[line] = ""
    source[20], target[20] = source[30], target[30]
    write(tmp_path, "a.de", source)
    write(tmp_path, "a.en", target)
    write(tmp_path, "b.tsv", ["eins\tone", "\t", "zwei\ttwo"])
    data = {"source": "de", "target": "en", "train": [str(tmp_path / "a"), {"tsv": tmp_path / "b.tsv"}]}
    found = check_corpora(DataConfig.model_validate(data)).reports["train"].to_dict()
    assert (found["pairs"], found["kept"]) == (43, 31)
    assert found["corpora"] == [
        {"name": "a", "pairs": 40, "kept": 29},
        {"name": "b.tsv", "pairs": 3, "kept": 2},
    ]
    dropped = found["dropped"]
    assert list(dropped) == ["one_side_empty", "duplicate", "both_empty"]
    assert dropped["one_side_empty"]["count"] == 10
    assert [place["line"] for place in dropped["one_side_empty"]["examples"]] == [1, 2, 3, 4, 5]
    assert dropped["duplicate"]["examples"] == [{"corpus": "a", "line": 31}]
    assert dropped["both_empty"]["examples"] == [{"corpus": "b.tsv", "line": 2}]
    assert json.loads(json.dumps(found)) == found


def test_samples_repeat_with_the_seed_and_are_kept_pairs() -> None:
    pairs = [(str(number), "x") for number in range(5000)]
    first, again, other = (report_of(pairs, seed=seed).samples() for seed in (3, 3, 4))
    assert first == again != other
    assert len({pair.line for pair in first}) == 5
    assert report_of(pairs, samples=0).samples() == []
    assert len(report_of(pairs[:3], samples=5).samples()) == 3


SENTENCES = {
    "de": [
        "Ein Mann mit einem Hut sitzt auf der Bank und liest die Zeitung.",
        "Zwei Kinder spielen im Park, und ihre Mutter ist nicht zu sehen.",
        "Die Frau hat das Buch, das sie sich von einer Freundin geliehen hat.",
    ],
    "en": [
        "A man with a hat is sitting on the bench and reads the paper.",
        "Two children are playing in the park, and their mother is not to be seen.",
        "The woman has the book that she had borrowed from one of her friends.",
    ],
    "fr": [
        "Un homme avec un chapeau est sur le banc et il lit le journal.",
        "Deux enfants sont dans le parc, et leur mère ne se voit pas.",
        "La femme a le livre que son amie lui a donné pour les vacances.",
    ],
    "nn": ["Ein mann sit og les", "Ho kom heim", "Vi gjekk"],
}


@pytest.mark.parametrize(
    ("source", "target", "labels", "said"),
    [
        ("de", "en", ("de", "en"), []),
        ("fr", "en", ("de", "en"), ["the text of de looks like fr"]),
        ("en", "de", ("deu_Latn", "eng_Latn"), ["look swapped: the text of deu_Latn is eng_Latn"]),
        ("en", "de", ("qaa", "en"), ["the text of en looks like de"]),
        ("nn", "nn", ("de", "en"), []),  # too little
    ],
)
def test_languages_of_one_script_are_compared_with_the_labels(
    source: str, target: str, labels: tuple[str, str], said: list[str]
) -> None:
    # Lines of different lengths, the same on both sides; no warning but those of languages.
    pairs = [
        (f"{a} {number}", f"{b} {number}")
        for number, (a, b) in enumerate(zip(SENTENCES[source], SENTENCES[target], strict=True))
    ] * (1 if source == "nn" else 10)
    found = [warning for warning in report_of(pairs, labels).warnings() if "are the same" not in warning]
    assert len(found) == len(said)
    assert all(text in warning for text, warning in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("He said , that is all .", "looks tokenised already (a space before commas and full stops)"),
        ("He didn&apos;t come", "tokenised already (`&apos;`, `@-@`)"),
        ("他 说 ， 就 这样 。", "a space before commas"),
        ("\u2581He \u2581sa id", "looks cut into subwords already"),
        ("3 . 5 . 7 pm costs 3.50", "tokenised already"),
    ],
)
def test_tokenised_text_is_noticed_where_raw_text_is_wanted(line: str, said: str) -> None:
    pairs = [(line, f"Satz {number}") for number in range(20)]
    found = [
        warning for warning in report_of(pairs).warnings() if "tokenised" in warning or "subwords" in warning
    ]
    assert [said in warning for warning in found] == [True] * bool(said)
    assert not any("already" in warning for warning in report_of(pairs, raw=False).warnings())


def test_equal_sides_and_shifted_lines_are_noticed() -> None:
    chance = random.Random(5)
    source = [" ".join(GERMAN[: chance.randint(2, 13)]) for _ in range(400)]
    target = [line.upper() for line in source]
    assert report_of(list(zip(source, target, strict=True)), ("de", "de")).warnings() == []
    shifted = report_of(list(zip(source[1:], target[:-1], strict=True)), ("de", "de")).warnings()
    assert ["may not be translations" in warning for warning in shifted] == [True]
    same = report_of(list(zip(source, source, strict=True)), ("de", "de")).warnings()
    assert ["both sides are the same in 100%" in warning for warning in same] == [True]


def test_repairs_and_large_losses_are_warnings(tmp_path: Path) -> None:
    lines = sentences(GERMAN, 20)
    (tmp_path / "t.de").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*lines, ""]).encode())
    write(tmp_path, "t.en", ["", "", "", "", "", "", *lines[6:]])
    data = DataConfig.model_validate({"source": "de", "target": "en", "train": str(tmp_path / "t")})
    warnings = check_corpora(data).reports["train"].warnings()
    assert any(warning.startswith("20 lines ended in") for warning in warnings)
    assert "1 file began with a byte order mark, which was removed" in warnings
    assert any(warning.startswith("30% of the pairs are dropped") for warning in warnings)


def test_validation_text_is_only_refused_what_is_unusable_and_leaks_are_counted(tmp_path: Path) -> None:
    write(tmp_path, "t.tsv", ["eins\tone", "zwei\ttwo"])
    write(tmp_path, "v.tsv", ["zwei\ttwo", "drei\tthree", "drei\tthree", "x\t" + "long " * 900, "\t"])
    data = {"train": {"tsv": tmp_path / "t.tsv"}, "valid": {"tsv": tmp_path / "v.tsv"}}
    valid = check_corpora(DataConfig.model_validate(data)).reports["valid"]
    assert (valid.pairs, valid.kept, list(valid.dropped)) == (5, 4, ["both_empty"])
    assert "1 of these pairs is also in the training text" in valid.warnings()


def test_the_text_form_shows_lines_and_no_control_characters() -> None:
    report = report_of([("a\x1b[2Jb", "c")])
    report.drop(0, np.array([2]), np.array([REASON_IDS["one_side_empty"]], np.uint8))
    text = "\n".join(report_lines("train", report.to_dict()))
    assert "train: 1 of 2 pairs kept (50.00%)" in text
    assert "dropped 1 one_side_empty (one side is empty or only spaces, the other is not): line 2" in text
    assert "a\\x1b[2Jb" in text


@pytest.mark.parametrize(
    ("line", "said"),
    [("ko\u0308nnen", "NFC"), ("100\u00a0km", "no-break spaces"), ("Zu\u00adcker", "without width")],
)
def test_characters_that_look_like_others_are_noticed(line: str, said: str) -> None:
    (found,) = [each for each in report_of([(line, "yes"), ("Tag", "day")]).warnings() if each[:4] == "de: "]
    assert "50.0% of the lines have" in found
    assert said in found
    assert not [each for each in report_of([("können 100 km", "yes")]).warnings() if each[:4] == "de: "]
