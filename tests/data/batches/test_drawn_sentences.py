"""Noise in the batches of a text: what is read, and that going on from anywhere reads the same."""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from deepwire.data.batches.batching import BatchSettings, StreamPosition, UpdateStream
from deepwire.data.batches.token_store import StoreWriter, TokenBlock, TokenStore
from deepwire.data.data_config import TextNoiseConfig
from deepwire.data.text.noise import LineNoise
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import EOS, PAD, Vocabularies
from deepwire.data.vocabulary_config import BpeConfig

LINES = 600
NOISE = {"upper": 0.1, "title": 0.1, "typos": 0.1, "drop_final_punctuation": 0.2}


@cache
def vocabularies():
    texts = ["der kleine hund läuft. Haus Baum", "ABCDEFGHIJKLMNOPQRSTUVWXYZÄ a b c d e f g h i"]
    pairs = [Pair(place, text, text.upper() + text, 0) for place, text in enumerate(texts * 20)]
    return Vocabularies.learn(BpeConfig(type="bpe", size=340), pairs)


@cache
def store():
    folder = _folder()
    words = ["der", "kleine", "hund", "läuft", "haus", "baum"]
    generator = np.random.default_rng(1)
    sources = [" ".join(generator.choice(words, generator.integers(2, 9))) + "." for _ in range(LINES)]
    targets = [" ".join(reversed(line[:-1].split())) + "." for line in sources]
    with StoreWriter(folder, vocabularies().source.size, vocabularies().target.size) as writer:
        source, target = vocabularies().source, vocabularies().target
        writer.add(
            TokenBlock.of(source.encode_lines(sources), sources),
            TokenBlock.of(target.encode_lines(targets), targets),
        )
        writer.finish()
    return TokenStore(folder)


_kept: list[TemporaryDirectory[str]] = []


def _folder():
    _kept.append(TemporaryDirectory())
    return Path(_kept[-1].name) / "store"


def stream(noise=NOISE, sampling=0.0, share=(0, 1), seed=4):
    made = None if noise is None else LineNoise(TextNoiseConfig(**noise), [("de", "en")])
    settings = BatchSettings(400, 200, sampling=sampling, noise=made)
    return UpdateStream(store(), settings, seed=seed, vocabularies=vocabularies(), share=share)


def texts(epoch=0, **settings):
    """Source and target of each pair, as an epoch reads them."""
    made, found, words = stream(**settings), {}, vocabularies()
    for update, _ in islice(made.updates(StreamPosition(epoch)), made.updates_in_epoch(epoch)):
        for batch in update.batches:
            for row, line in enumerate(batch.lines.tolist()):
                sides = (words.source, batch.source), (words.target, batch.target_output)
                found[line] = tuple(side.decode(ids[row].tolist()) for side, ids in sides)
    return found


@pytest.mark.parametrize("sampling", [0.0, 0.2])
def test_batches_have_the_lines_with_their_noise(sampling):
    found = texts(sampling=sampling)
    assert sorted(found) == list(range(LINES))
    changed = [line for line, (source, _) in found.items() if source != store().source_text(line)]
    assert 0.4 * LINES < len(changed) < 0.9 * LINES
    capitals = 0
    for line, (source, target) in found.items():
        plain = store().target_text(line)
        assert target == (plain.upper() if source.isupper() else plain)
        capitals += source.isupper()
    assert 0.02 * LINES < capitals < 0.15 * LINES
    assert texts(sampling=sampling) == found
    assert texts(sampling=sampling, epoch=1) != found
    assert texts(sampling=sampling, seed=5) != found


def test_the_order_of_pairs_is_complete_without_noise_and_nothing_is_drawn():
    found = texts(noise=None)
    assert {line: source for line, (source, _) in found.items()} == {
        line: store().source_text(line) for line in range(LINES)
    }
    assert texts(noise={}) == found


@pytest.mark.parametrize("sampling", [0.0, 0.2])
def test_going_on_from_any_update_gives_the_same(sampling):
    taken = list(islice(stream(sampling=sampling).updates(StreamPosition()), 60))
    for done in (1, 17, 45):
        again = stream(sampling=sampling).updates(taken[done - 1][1])
        for (update, _), (other, _) in zip(taken[done : done + 5], again, strict=False):
            assert update.number == other.number
            for one, two in zip(update.batches, other.batches, strict=True):
                assert np.array_equal(one.source, two.source)
                assert np.array_equal(one.target_output, two.target_output)


def test_processes_share_what_one_would_read():
    def rows(share):
        return [
            tuple(number for number in row if number not in (PAD, EOS))
            for update, _ in islice(stream(share=share).updates(StreamPosition()), 20)
            for batch in update.batches
            for row in batch.source.tolist()
        ]

    assert sorted(rows((0, 2)) + rows((1, 2))) == sorted(rows((0, 1)))
