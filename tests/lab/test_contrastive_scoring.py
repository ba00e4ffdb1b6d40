"""Contrastive sets with a known answer, their files, and the statistics on known numbers."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from small_runs import ModelMaker, Store

from deepwire.cli.main import main
from deepwire.decoding.model_loading import load
from deepwire.decoding.scoring import PairScore
from deepwire.errors import DataError
from deepwire.lab import contrastive_scoring
from deepwire.lab.contrastive_scoring import (
    Contrast,
    analyse_agreement,
    decide,
    mcnemar,
    read_lingeval,
    read_plain,
    wilson,
)


class LikesShort:
    """A model whose log-probability is minus the number of words; more than nine cannot be scored."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def score(
        self, pairs: Iterable[tuple[str, str]], *, to: str | None = None, documents: bool = True
    ) -> Iterator[PairScore]:
        assert not documents, "the two sides of a contrast are no document"
        for line, (source, target) in enumerate(pairs, 1):
            self.asked.append((source, target))
            words = tuple(target.split())
            if len(words) > 9:
                yield PairScore(line, 0.0, (), (), "long_target")
            else:
                yield PairScore(line, -float(len(words)), words, (*(-1.0,) * len(words), 0.0))


def contrast(reference: int, contrastive: int, distance: int | None = None, kind: str = "") -> Contrast:
    return Contrast("s", "a " * reference, "b " * contrastive, kind, distance)


def test_the_better_score_decides_and_a_tie_is_wrong() -> None:
    found = decide("m", LikesShort(), [contrast(2, 3), contrast(3, 2), contrast(2, 2), contrast(2, 12)])  # type: ignore[arg-type]
    assert found.right == (True, False, False, None)


def test_a_model_decides_as_its_scores_say(
    make_model: ModelMaker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contrastive_scoring, "LONGEST", 2)
    name = store(make_model({}), update=7)
    sentences = ["a dog", "two cats", "dog in the house", "cats a two in", "the"]
    contrasts = [
        Contrast("ein hund im haus", one, other, "order", 1 + place % 3)
        for place, (one, other) in enumerate(
            (one, other) for one in sentences for other in sentences if one != other
        )
    ]
    translator = load(name, "cpu", "fp32")
    scores = {
        text: next(iter(translator.score([("ein hund im haus", text)]))).log_probability for text in sentences
    }
    expected = [scores[each.reference] > scores[each.contrastive] for each in contrasts]
    assert len(set(scores.values())) == len(scores)
    finding = analyse_agreement([name, name], contrasts, "made by hand", device="cpu", precision="fp32")
    overall = finding.tables[0].rows
    assert [row[1:3] for row in overall] == [(20, sum(expected))] * 2
    assert sum(expected) == 10
    assert overall[1][-1] == 1.0
    share = sum(right for right, each in zip(expected, contrasts, strict=True) if each.distance == 1) / 7
    (figure,) = finding.figures
    assert figure.series[0].x == (1, 2, 3)  # the last one stands for all above
    assert figure.series[0].y[0] == pytest.approx(100 * share)
    assert figure.y == "accuracy [%]"
    assert finding.provenance.models[0].update == 7
    assert finding.provenance.settings["precision"] == "fp32"


def test_the_interval_of_wilson_has_published_values() -> None:
    # Newcombe 1998, Table I, method 3.
    for right, count, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (29, 29, 0.8830, 1),
    ):
        assert wilson(right, count) == pytest.approx((low, high), abs=5e-5)


def test_mcnemar_counts_only_what_differs() -> None:
    first = [True] * 5 + [False] * 5 + [True, None]
    second = [True] * 5 + [True] * 5 + [True, False]
    # 5 against 0 in a fair coin: 2 / 2^5
    assert mcnemar(first, second) == pytest.approx(2 / 32)
    assert mcnemar(first, first) == 1.0
    assert mcnemar([True] * 3000, [False] * 3000) < 1e-300


LINGEVAL = [
    {
        "source": "The dogs of the man sleep.",
        "reference": "Die Hunde des Mannes  schlafen.",
        "origin": "newstest2009.1",
        "errors": [
            {
                "type": "subj_verb_agreement",
                "contrastive": "Die Hunde des Mannes schläft.",
                "distance": 3,
                "frequency": 9,
            },
            {"type": "np_agreement", "contrastive": "Der Hunde des Mannes schlafen.", "distance": 1},
        ],
    },
    {
        "source": "No.",
        "reference": "Nein.",
        "errors": [{"type": "polarity", "contrastive": "Ja.", "distance": None}],
    },
    {"source": "Yes.", "reference": "Ja.", "errors": []},
]


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress])
def test_lingeval_is_read_as_published(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "lingeval97.json"
    path.write_bytes(pack(json.dumps(LINGEVAL).encode()))
    found = read_lingeval(path)
    assert [(one.kind, one.distance) for one in found] == [
        ("subj_verb_agreement", 3),
        ("np_agreement", 1),
        ("polarity", None),
    ]
    assert found[0].reference == "Die Hunde des Mannes schlafen."
    assert found[1].contrastive == "Der Hunde des Mannes schlafen."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the whole: Invalid JSON"),
        ("{}", "the whole: Input should be a valid"),
        ('[{"source": "a", "reference": "b", "errors": ["c"]}]', "0.errors.0: "),
        (
            '[{"source": "a", "reference": "b", "errors": [{"contrastive": "c", "distance": -1}]}]',
            "errors.0.distance: ",
        ),
    ],
)
def test_files_of_another_form_are_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "set.json"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read_lingeval(path)
    assert str(path) in caught.value.message
    assert message in caught.value.message


def test_plain_files_are_read_line_by_line(tmp_path: Path) -> None:
    texts = {"s": "a\nb\n", "r": "c\nd\n", "x": "e\nf\n", "short": "1\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = (tmp_path / "s", tmp_path / "r", tmp_path / "x")
    assert read_plain(*files) == [Contrast("a", "c", "e"), Contrast("b", "d", "f")]
    with pytest.raises(DataError, match="short"):
        read_plain(*files[:2], tmp_path / "short")


def test_the_command_reads_either_form(
    make_model: ModelMaker, store: Store, tmp_path: Path, analyze, capsys: pytest.CaptureFixture[str]
) -> None:
    name = store(make_model({}))
    for part, text in (("s", "hund\n"), ("r", "dog\n"), ("x", "a dog\n")):
        (tmp_path / part).write_text(text)
    plain = ["--source", str(tmp_path / "s"), "--reference", str(tmp_path / "r")]
    command = ["agreement", name, "--contrastive", str(tmp_path / "x"), "--device", "cpu"]
    found = analyze(*command, *plain)
    assert found["tables"][0]["rows"][0][1] == 1
    for part, text in (("s", "hund\n"), ("r", "dog\n"), ("x", "a dog\n")):
        (tmp_path / part).write_text(text * 9)
    found = analyze(*command, *plain, "--sample", "4")
    assert found["tables"][0]["rows"][0][1] == 4
    assert "(4 of 9), 4 contrasts" in found["provenance"]["data"][0]
    assert main(["analyze", *command, *plain[:2]]) == 2
    assert "--source and --reference go together" in capsys.readouterr().err
    assert main(["analyze", *command]) == 3
    assert "x: is not of the form of LingEval97" in capsys.readouterr().err


def test_mcnemar_of_many_is_the_binomial_test() -> None:
    first, second = [True] * 520 + [False] * 500, [False] * 520 + [True] * 500
    tail = sum(math.comb(1020, number) for number in range(501))
    assert mcnemar(first, second) == pytest.approx(float(Fraction(2 * tail, 2**1020)), rel=1e-12)
