"""Known lines are translated as they were: by beam and greedily, with alignments, scores and terms."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract_runs import SAME, stored, succeed
from contract_texts import CERTAIN, EXACT, TERMS, copy_of_old, translated

import deepwire


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = copy_of_old(tmp_path_factory.mktemp("translate"))
    (path / "terms.tsv").write_text(TERMS, encoding="utf-8")
    return path


@pytest.mark.parametrize(("search", "options"), [("beam", ()), ("greedy", ("--beam", 1))])
def test_known_lines(folder: Path, search: str, options: tuple[object, ...]) -> None:
    found, known = translated(folder, *options), stored("texts")[search]
    assert [(text, links) for text, _, links in found] == [(text, links) for text, _, links in known]
    assert [score for _, score, _ in found] == pytest.approx([score for _, score, _ in known], rel=SAME)


def test_python_translates_and_scores_alike(folder: Path) -> None:
    lines = (folder / "text.de").read_text(encoding="utf-8").splitlines()[:CERTAIN]
    model = deepwire.load(folder / "model", "cpu", "fp32")
    texts = model.translate([*lines, ""])
    assert texts == [*(text for text, *_ in stored("texts")["beam"]), ""]
    found = list(model.score(zip(lines, texts, strict=False)))
    pairs = "".join(f"{source}\t{target}\n" for source, target in zip(lines, texts, strict=False))
    assert len(found) == len(pairs.splitlines()) == CERTAIN
    assert all(-5 < one.log_probability < 0 for one in found)


def test_a_line_in_is_a_line_out(folder: Path) -> None:
    out = succeed(
        "translate", "model", *EXACT, "--alignment", cwd=folder, stdin="\nEin Hund rennt im Schnee.\n\n"
    )
    first, second, third, end = out.split("\n")
    known = {text: links for text, _, links in stored("texts")["beam"]}["A dog is running in the snow"]
    assert second == "A dog is running in the snow ||| " + " ".join(f"{one}-{other}" for one, other in known)
    assert [first.strip(" |"), third.strip(" |"), end] == ["", "", ""]


def test_terms(folder: Path) -> None:
    """The beam must have them, with `prefer` they only become likelier; other lines stay."""
    plain, beam, prefer = (
        succeed("translate", "model", "--input", "text.de", *EXACT, *options, cwd=folder).splitlines()
        for options in (
            (),
            ("--terms", "terms.tsv", "--term-search", "beam"),
            ("--terms", "terms.tsv", "--term-search", "prefer"),
        )
    )
    sources = (folder / "text.de").read_text(encoding="utf-8").splitlines()
    terms = [("Hund" in line, "Hochhaus" in line) for line in sources]
    assert sum(map(any, terms)) == 4
    for (dog, tower), without, kept in zip(terms, plain, beam, strict=True):
        assert ("cat" in kept, "skyscraper" in kept) == (dog, tower)
        assert dog or tower or kept == without
    assert "skyscraper" in prefer[-1]
    assert prefer[:3] == plain[:3]


def test_candidates_and_draws(folder: Path) -> None:
    line = "Ein Hund rennt im Schnee.\n"
    out = succeed("translate", "model", *EXACT, "--n-best", 3, cwd=folder, stdin=line).splitlines()
    scores = [float(one.split(" ||| ")[-1]) for one in out]
    assert [one.split(" ||| ")[0] for one in out] == ["0"] * 3
    assert scores == sorted(scores, reverse=True)
    draws = [
        succeed("translate", "model", *EXACT, "--sample", "--seed", seed, cwd=folder, stdin=line * 3)
        for seed in (1, 1)
    ]
    assert draws[0] == draws[1]
