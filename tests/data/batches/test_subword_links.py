"""Links of words as links of subwords: cut as stored, and at random."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from deepwire.data.batches.batching import BatchSettings, StreamPosition, UpdateStream
from deepwire.data.batches.token_store import StoreWriter, TokenBlock, TokenStore
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import BOS, Vocabularies
from deepwire.data.vocabulary_config import BpeConfig, VocabularyConfig, WordsConfig

SOURCES = ["der kleine hund läuft .", "haus baum", "ein haus"]
TARGETS = ["the little dog runs .", "house tree", "a house"]
LINKS = [[(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)], [(0, 0), (0, 1), (1, 1)], []]


def made(folder: Path, config: VocabularyConfig) -> tuple[TokenStore, Vocabularies]:
    pairs = [Pair(place, *sides, 0) for place, sides in enumerate(zip(SOURCES * 9, TARGETS * 9, strict=True))]
    words = Vocabularies.learn_from_blocks(config, [pairs])
    with StoreWriter(folder / "store", words.source.size, words.target.size, aligned=True) as writer:
        flat = np.array([number for row in LINKS for link in row for number in link])
        source = TokenBlock.of(words.source.encode_lines(SOURCES), SOURCES)
        target = TokenBlock.of(words.target.encode_lines(TARGETS), TARGETS)
        writer.add(source, target, links=(flat, np.array(list(map(len, LINKS)))))
        writer.finish()
    return TokenStore(folder / "store"), words


@pytest.mark.parametrize(
    ("config", "sampling"),
    [
        (BpeConfig(type="bpe", size=60, byte_fallback=False), 0.0),
        (BpeConfig(type="bpe", size=60, byte_fallback=False), 0.4),
        (WordsConfig(), 0.0),
    ],
)
@pytest.mark.parametrize("bos", [False, True])
def test_subwords_belong_together_if_their_words_do(
    tmp_path: Path, config: VocabularyConfig, sampling: float, bos: bool
) -> None:
    store, words = made(tmp_path, config)
    assert [store.word_links(line).tolist() for line in range(3)] == [
        [list(one) for one in row] for row in LINKS
    ]
    settings = BatchSettings(60, 60, source_bos=bos, sampling=sampling, aligned=True)
    stream = UpdateStream(store, settings, seed=2, vocabularies=words)
    for update, _ in islice(stream.updates(StreamPosition()), 6):
        for batch in update.batches:
            assert batch.links is not None
            for row, line in enumerate(batch.lines.tolist()):
                own = batch.links[batch.links[:, 0] == row]
                found = {
                    (word_of(words.source, batch.source[row], read), word_of(words.target, target, written))
                    for target in [batch.target_output[row]]
                    for _, written, read in own.tolist()
                }
                assert found == set(LINKS[line])
                assert len({tuple(link) for link in own.tolist()}) == len(own)


def word_of(vocabulary, ids, place):
    """The word that a subword belongs to, by where spaces are written."""
    pieces = vocabulary.pieces(ids[: place + 1].tolist())
    spaces = "".join(pieces).count("\u2581")
    return spaces - 1 if spaces else place - int(ids[0] == BOS)
