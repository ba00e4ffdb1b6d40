"""What lengths are counted in."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepwire.cli.main import main
from deepwire.errors import UsageError
from deepwire.evaluation.metric_choice import corpus_score
from deepwire.lab.source_length import cut, equal_bounds

LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=80).filter(any)


@given(LENGTHS, st.sets(st.integers(1, 40), max_size=5))
def test_every_sentence_is_in_the_one_part_of_its_length(lengths: list[int], bounds: set[int]) -> None:
    buckets = cut(lengths, sorted(bounds))
    rows = [row for bucket in buckets for row in bucket.rows]
    assert sorted(rows) == [row for row, length in enumerate(lengths) if length]
    for bucket in buckets:
        found = [lengths[row] for row in bucket.rows]
        assert bucket.low <= min(found)
        assert bucket.high is None or max(found) <= bucket.high


@given(LENGTHS, st.integers(1, 6))
def test_equal_parts_never_split_a_length_and_are_no_more_than_asked_for(
    lengths: list[int], parts: int
) -> None:
    bounds = equal_bounds(lengths, parts)
    assert bounds == sorted(set(bounds))
    assert len(cut(lengths, bounds)) <= parts


@pytest.mark.parametrize("bounds", [[0, 5], [5, 5], [9, 3], [-1]])
def test_bounds_ascend_from_one(bounds: list[int]) -> None:
    with pytest.raises(UsageError, match="must ascend"):
        cut([1, 2], bounds)


def test_command_scores_each_part_by_itself(run: str, corpus: Path, capsys, analyze, tmp_path: Path) -> None:
    options = ["--bounds", "8,12", "--rounds", "1", "--device", "cpu"]
    finding = analyze("length", run, f"{run}@last", *options)
    (scores,) = finding["tables"]
    sources = (corpus / "test.de").read_text().splitlines()
    references = (corpus / "test.en").read_text().splitlines()
    lengths = [len(line.split()) for line in sources]
    middle = [row for row, length in enumerate(lengths) if 8 < length <= 12]
    assert [row[2] for row in scores["rows"]] == 2 * [
        sum(length <= 8 for length in lengths),
        len(middle),
        sum(length > 12 for length in lengths),
    ]
    (tmp_path / "middle.de").write_text("".join(f"{sources[row]}\n" for row in middle))
    assert main(["translate", run, "-i", str(tmp_path / "middle.de"), "--device", "cpu", "-q"]) == 0
    translated = capsys.readouterr().out.splitlines()
    wanted = corpus_score("bleu", translated, [references[row] for row in middle]).value
    by_model = {(row[0], row[1]): row[3] for row in scores["rows"]}
    assert by_model[run, "9-12"] == pytest.approx(wanted)
    assert by_model[f"{run}@last", "9-12"] == pytest.approx(wanted)
    assert all(row[6] > 0 for row in scores["rows"])
