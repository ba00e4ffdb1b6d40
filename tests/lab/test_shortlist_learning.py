"""Shortlists as they are learned from a text, for one target language or several."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from shortlist_texts import SIZE, silent, store_of
from toy_vocabulary import toy_vocabularies

from deepwire.data.languages import Direction, Languages
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK
from deepwire.decoding.shortlist import LanguageRows, batch_shortlist
from deepwire.errors import DataError, UsageError
from deepwire.lab.shortlist_learning import (
    LexicalProbabilities,
    build_table,
    directions_into,
    learn_seen_shortlist,
    learn_shortlist,
)


def test_a_table_keeps_the_best_the_frequent_and_what_is_written_alike():
    e, f, p = zip(*[(4, 5, 0.5), (4, 6, 0.2), (4, 7, 0.3), (5, 8, 1e-6)], strict=True)
    learned = LexicalProbabilities(np.array(e), np.array(f), np.array(p, np.float32))
    counts = np.zeros(SIZE, np.int64)
    counts[[9, 11]] = 7, 8
    made = build_table(learned, counts, toy_vocabularies(SIZE), best=2, first=1)
    assert made.always.tolist() == [PAD, BOS, EOS, UNK, 11]

    def of(number):
        return made.targets[made.offsets[number] : made.offsets[number + 1]].tolist()

    assert of(4) == [4, 5, 7]
    assert of(5) == [5]
    assert of(20) == [20], "a subword that was never seen can still be copied"


def test_each_target_language_has_its_own(tmp_path):
    directions = tuple(map(Direction.parse, ["en-de", "en-fr", "de-en"]))
    text = [([4, 5], [14, 15]), ([4, 5], [24, 25])] * 20
    store = store_of(tmp_path / "store", text, [0, 1] * 20)
    into = directions_into(Languages(directions), None)
    assert into == {"de": [0], "en": [2], "fr": [1]}
    with pytest.raises(DataError, match="into en"):
        learn_shortlist(store, toy_vocabularies(SIZE), into, silent, best=100, first=0)
    made = learn_shortlist(store, toy_vocabularies(SIZE), {"de": [0], "fr": [1]}, silent, best=100, first=0)
    read = torch.tensor([[4, 5, EOS]])
    de, fr = LanguageRows(0, made.table("de"), read), LanguageRows(2, made.table("fr"), read)
    tokens, allowed = batch_shortlist([de], 3)
    assert (tokens.tolist(), allowed) == ([0, 1, 2, 3, 4, 5, 14, 15], None)
    tokens, allowed = batch_shortlist([de, fr], 3)
    assert tokens.tolist() == [0, 1, 2, 3, 4, 5, 14, 15, 24, 25]
    assert [tokens[row].tolist() for row in allowed] == [
        [0, 1, 2, 3, 4, 5, 14, 15],
        tokens.tolist(),
        [0, 1, 2, 3, 4, 5, 24, 25],
    ]
    with pytest.raises(UsageError, match="no subwords of en"):
        made.table("en")
    with pytest.raises(UsageError, match="one direction"):
        directions_into(None, "de")


def test_what_was_seen_is_all_that_the_text_of_a_language_has(tmp_path):
    languages = Languages(tuple(map(Direction.parse, ["en-de", "fr-de", "de-en"])))
    store = store_of(tmp_path / "store", [([4], [9]), ([5], [7, 9]), ([6], [8]), ([4], [])], [0, 1, 2, 0])
    made = learn_seen_shortlist(store, toy_vocabularies(SIZE), directions_into(languages, None), silent)
    found = {name: one.always.tolist() for name, one in made.tables.items()}
    assert found == {"de": [PAD, BOS, EOS, UNK, 7, 9], "en": [PAD, BOS, EOS, UNK, 8]}
    assert made.made_from == {"de": {"lines": 3}, "en": {"lines": 1}}
    one = learn_seen_shortlist(store, toy_vocabularies(SIZE), {"": None}, silent).table("")
    assert one.always.tolist() == [PAD, BOS, EOS, UNK, 7, 8, 9]
    with pytest.raises(DataError, match="no text to find subwords in in it"):
        learn_seen_shortlist(store, toy_vocabularies(SIZE), {"it": [7]}, silent)
