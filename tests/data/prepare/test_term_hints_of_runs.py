"""`data.term_hints`: what training reads, and what is refused."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from deepwire.data.batches.batching import BatchSettings, StreamPosition, UpdateStream
from deepwire.data.batches.subword_links import SubwordLinks
from deepwire.data.data_config import DataConfig
from deepwire.data.prepare.prepared import prepare
from deepwire.data.text.term_hints import HINT_BEGIN, HINT_END
from deepwire.data.vocabulary import hint_ids
from deepwire.errors import DataError

LINES = [("Der braune Hund", "The brown dog", "0-0 1-1 2-2"), ("Zwei Katzen", "Two cats", "0-0 1-1")] * 30
# No sentence becomes longer than the longest that is stored.
LINES.append(("lang " * 30, "long " * 30, ""))


def prepared(folder, **settings):
    for number, name in enumerate(("train.de", "train.en", "train.align")):
        (folder / name).write_text("".join(f"{line[number]}\n" for line in LINES))
    train = {"prefix": folder / "train", "alignments": folder / "train.align"}
    data: dict[str, object] = {
        "source": "de",
        "target": "en",
        "train": train,
        "filters": {"drop_duplicates": False},
    }
    data.update(
        {"vocabulary": {"type": "bpe", "size": 330}, "term_hints": 0.5, "prepared": folder / "prepared"}
    )
    return prepare(DataConfig.model_validate({**data, **settings}), seed=1)


def updates(made, share, count=40, start=None):
    settings = BatchSettings(60, 60, term_hints=share)
    stream = UpdateStream(made.train, settings, seed=3, vocabularies=made.vocabularies)
    return list(islice(stream.updates(start or StreamPosition()), count))


def test_a_share_of_the_lines_has_hints_that_the_target_has(tmp_path):
    made = prepared(tmp_path)
    marks, vocabulary = hint_ids(made.vocabularies.source), made.vocabularies
    assert vocabulary.has_hints
    rows = [
        (source, target)
        for update, _ in updates(made, 0.5)
        for batch in update.batches
        for source, target in zip(batch.source.tolist(), batch.target_output.tolist(), strict=True)
    ]
    hinted = [row for row in rows if marks[0] in row[0]]
    assert 0.3 < len(hinted) / len(rows) < 0.7
    for source, target in hinted:
        text = vocabulary.source.decode([number for number in source if number > 2])
        for part in text.split(HINT_BEGIN)[1:]:
            hint = part.split(HINT_END)[0].strip()
            assert (
                hint.lower() in vocabulary.target.decode([number for number in target if number > 2]).lower()
            )


def test_going_on_reads_the_same_and_links_pass_hints_by(tmp_path):
    made = prepared(tmp_path)
    whole = updates(made, 1.0, 12)
    rest = updates(made, 1.0, 6, whole[5][1])
    for (one, _), (other, _) in zip(whole[6:], rest, strict=True):
        assert [batch.source.tolist() for batch in one.batches] == [
            batch.source.tolist() for batch in other.batches
        ]
    vocabulary, links = made.vocabularies, SubwordLinks(made.train, made.vocabularies)
    target = vocabulary.target.encode(LINES[0][1])
    plain = vocabulary.source.encode(LINES[0][0])
    read = vocabulary.source.encode(f"Der{HINT_BEGIN} the{HINT_END} braune Hund")

    def found(ids):
        rows = links.of(
            (np.array(ids), np.array([len(ids)])), (np.array(target), np.array([len(target)])), np.array([0])
        )
        return [(written, ids[place]) for _, written, place in rows.tolist()]

    assert found(read) == found(plain)


def test_it_needs_alignments_and_a_vocabulary_with_marks(tmp_path):
    made = prepared(tmp_path)
    folder = made.folder / "vocabulary"
    with pytest.raises(ValueError, match="term_hints need to know which words belong together"):
        DataConfig.model_validate({"source": "de", "target": "en", "train": "t", "term_hints": 0.1})
    with pytest.raises(DataError, match=r"was learned with marks for hints.*term_hints to a share"):
        prepared(tmp_path, term_hints=0, vocabulary={"type": "existing", "folder": folder})
    plain = prepared(tmp_path, term_hints=0).folder / "vocabulary"
    with pytest.raises(DataError, match=r"has no marks for hints"):
        prepared(tmp_path, vocabulary={"type": "existing", "folder": plain})
    with pytest.raises(ValueError, match="term_hints need a vocabulary of type bpe or unigram"):
        prepared(tmp_path, vocabulary={"type": "words"})
