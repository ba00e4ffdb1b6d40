from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise, takewhile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from real_text import lines

from deepwire.data.batches import batching
from deepwire.data.batches.batching import (
    Batch,
    BatchSettings,
    StreamPosition,
    Update,
    UpdateStream,
    cut_batches,
    cut_updates,
    validation_batches,
)
from deepwire.data.batches.collator import BatchPiece, partition_batches
from deepwire.data.batches.token_store import StoreWriter, TokenBlock, TokenStore
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import BOS, EOS, PAD, Vocabularies
from deepwire.data.vocabulary_config import VocabularyConfig

VOCABULARY = 50


def store_of(folder: Path, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Path:
    with StoreWriter(folder, VOCABULARY, VOCABULARY) as writer:
        for start in range(0, len(sources), 1000):
            sides = (side[start : start + 1000] for side in (sources, targets))
            source, target = (TokenBlock.of(side, ["x"] * len(side)) for side in sides)
            writer.add(source, target)
        writer.finish()
    return folder


def random_rows(count: int, seed: int, longest: int = 30) -> tuple[list[list[int]], list[list[int]]]:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, longest + 1, count)
    others = np.maximum(0, lengths + generator.integers(-3, 4, count))
    first, second = (
        [generator.integers(4, VOCABULARY, size).tolist() for size in sizes] for sizes in (lengths, others)
    )
    return first, second


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return TokenStore(store_of(tmp_path_factory.mktemp("store") / "s", *random_rows(3000, 1)))


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "_SMALLEST_WINDOW", (100, 100))
    monkeypatch.setattr(batching, "_LARGEST_WINDOW", 700)
    monkeypatch.setattr(batching, "_UPDATES_IN_WINDOW", 2)


def epoch_of(stream: UpdateStream, epoch: int = 0) -> list[Update]:
    updates = (update for update, _ in stream.updates(StreamPosition(epoch)))
    return list(takewhile(lambda update: update.epoch == epoch, updates))


def same(first: Batch, second: Batch) -> bool:
    names = ("source", "target_input", "target_output", "lines")
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in names)


def equal(first: Update, second: Update) -> bool:
    return (
        (first.number, first.epoch, first.target_tokens)
        == (second.number, second.epoch, second.target_tokens)
        and len(first.batches) == len(second.batches)
        and all(map(same, first.batches, second.batches))
    )


@pytest.mark.parametrize("source_bos", [False, True])
def test_arrays_hold_the_sentences(store: TokenStore, source_bos: bool) -> None:
    stream = UpdateStream(store, BatchSettings(500, 200, source_bos=source_bos), seed=3)
    for update in epoch_of(stream)[:20]:
        for batch in update.batches:
            assert batch.source.dtype == batch.target_input.dtype == batch.target_output.dtype == np.int64
            for row, line in enumerate(batch.lines.tolist()):
                source, target = (
                    store.source_side.sentence(line).tolist(),
                    store.target_side.sentence(line).tolist(),
                )
                before = [BOS] if source_bos else []
                assert batch.source[row].tolist() == padded([*before, *source, EOS], batch.source)
                assert batch.target_input[row].tolist() == padded([BOS, *target], batch.target_input)
                assert batch.target_output[row].tolist() == padded([*target, EOS], batch.target_output)
            assert batch.target_tokens == (batch.target_output != PAD).sum()
        assert update.target_tokens == sum(batch.target_tokens for batch in update.batches)


def padded(row: list[int], array: np.ndarray) -> list[int]:
    return row + [PAD] * (array.shape[1] - len(row))


@pytest.mark.parametrize(
    "settings_", [BatchSettings(500, 200), BatchSettings(10_000, 700), BatchSettings(50, 4000)]
)
def test_every_sentence_once_an_epoch(
    store: TokenStore, settings_: BatchSettings, small_windows: None
) -> None:
    stream = UpdateStream(store, settings_, seed=1)
    for epoch in (0, 1):
        updates = epoch_of(stream, epoch)
        read = [batch.lines for update in updates for batch in update.batches]
        assert np.array_equal(np.sort(np.concatenate(read)), np.arange(len(store)))
        assert {update.epoch for update in updates} == {epoch}


def test_batches_keep_to_their_size_and_updates_come_close(store: TokenStore) -> None:
    stream = UpdateStream(store, BatchSettings(1000, 200), seed=1)
    updates = epoch_of(stream)
    for update in updates:
        for batch in update.batches:
            assert max(batch.source.shape[1], batch.target_output.shape[1]) * len(batch.lines) <= 200
    tokens = np.array([update.target_tokens for update in updates])
    assert abs(tokens.mean() - 1000) < 30
    assert np.abs(tokens[:-1] - 1000).max() <= 110  # half of a batch at most
    assert [update.number for update in updates] == list(range(1, len(updates) + 1))


def test_a_sentence_above_the_size_is_a_batch_of_its_own(tmp_path: Path) -> None:
    rows = [[5] * size for size in (3, 80, 2, 90, 4)]
    stream = UpdateStream(TokenStore(store_of(tmp_path / "s", rows, rows)), BatchSettings(40, 20), seed=1)
    batches = [batch for update in epoch_of(stream) for batch in update.batches]
    assert sorted(len(batch.lines) for batch in batches if batch.source.shape[1] > 20) == [1, 1]
    assert sum(len(batch.lines) for batch in batches) == 5


@pytest.mark.parametrize("sampling", [0.0, 0.3])
def test_going_on_from_any_position_gives_the_same(sampling: float) -> None:
    """Within an epoch, at its end and in the next one."""

    def stream() -> UpdateStream:
        settings = BatchSettings(300, 150, sampling=sampling)
        return UpdateStream(multi30k(), settings, seed=2, vocabularies=bpe())

    epoch = len(epoch_of(stream()))
    assert epoch > 9
    taken = list(islice(stream().updates(StreamPosition()), epoch + 9))
    for skip in (7, epoch, epoch + 5):
        position = taken[skip - 1][1]
        again = islice(stream().updates(position), 4)
        for (update, after), (fresh, after_fresh) in zip(taken[skip:], again, strict=False):
            assert equal(update, fresh)
            assert after == after_fresh


@given(widths=st.lists(st.integers(1, 60), max_size=200).map(sorted), most=st.integers(1, 300))
def test_batches_are_as_full_as_they_can_be(widths: list[int], most: int) -> None:
    cuts = cut_batches(np.array(widths, dtype=np.int64), most)
    assert cuts[0] == 0
    assert cuts[-1] == len(widths)
    for start, end in pairwise(cuts):
        assert end > start
        rows = end - start
        assert rows == 1 or widths[end - 1] * rows <= most
        if end == len(widths):
            continue
        assert rows < 8 or rows % 8 == 0
        more = 1 if rows < 8 else 8
        assert end + more > len(widths) or widths[end + more - 1] * (rows + more) > most
        assert widths[-1] * (len(widths) - start) > most, "the rest would have been one batch"


@given(tokens=st.lists(st.integers(1, 50), min_size=1, max_size=60), wanted=st.integers(1, 200))
def test_updates_stop_where_they_are_closest(tokens: list[int], wanted: int) -> None:
    bounds = cut_updates(tokens, wanted)
    assert bounds[0] == 0
    assert bounds[-1] == len(tokens)
    assert all(end > start for start, end in pairwise(bounds))
    for start, end in list(pairwise(bounds))[:-1]:
        held, after = sum(tokens[start:end]), tokens[end]
        assert abs(held + after - wanted) > abs(wanted - held)


def test_validation_reads_every_pair_once(store: TokenStore) -> None:
    batches = list(validation_batches(store, 300, source_bos=True))
    assert np.array_equal(np.sort(np.concatenate([b.lines for b in batches])), np.arange(len(store)))
    assert all(max(b.source.shape[1], b.target_input.shape[1]) * len(b.lines) <= 300 for b in batches)
    assert all((b.source[:, 0] == BOS).all() for b in batches)
    assert sum(b.target_tokens for b in batches) == int(store.target_side.lengths[:].sum()) + len(store)


_MADE: dict[str, object] = {}


def bpe() -> Vocabularies:
    if "bpe" not in _MADE:
        source, target = lines("de", 5000), lines("en", 5000)
        config = TypeAdapter(VocabularyConfig).validate_python({"type": "bpe", "size": 4000})
        pairs = [Pair(n, s, t, 0) for n, (s, t) in enumerate(zip(source, target, strict=True), 1)]
        _MADE["bpe"] = Vocabularies.learn_from_blocks(config, [pairs])
    made = _MADE["bpe"]
    assert isinstance(made, Vocabularies)
    return made


def multi30k() -> TokenStore:
    """The first 600 pairs."""
    made = _MADE["store"]
    assert isinstance(made, TokenStore)
    return made


@pytest.fixture(autouse=True, scope="module")
def _multi30k_store(tmp_path_factory: pytest.TempPathFactory) -> None:
    _MADE["store"] = text_store(tmp_path_factory.mktemp("multi30k") / "s", 600)


def text_store(folder: Path, count: int) -> TokenStore:
    words = bpe()
    source, target = lines("de", count), lines("en", count)
    with StoreWriter(folder, words.source.size, words.target.size) as writer:
        writer.add(
            TokenBlock.of(words.source.encode_lines(source), source),
            TokenBlock.of(words.target.encode_lines(target), target),
        )
        writer.finish()
    return TokenStore(folder)


def test_padding_is_below_five_percent_on_multi30k(tmp_path: Path) -> None:
    store = text_store(tmp_path / "s", 29_000)
    for size in (1024, 4096):
        stream = UpdateStream(store, BatchSettings(4 * size, size), seed=1)
        batches = [batch for update in epoch_of(stream) for batch in update.batches]
        real = sum((batch.source != PAD).sum() + batch.target_tokens for batch in batches)
        places = sum(batch.source.size + batch.target_output.size for batch in batches)
        assert real / places >= 0.95


def test_sampled_batches_spell_the_same_text_in_other_pieces() -> None:
    words, store = bpe(), multi30k()
    stream = UpdateStream(store, BatchSettings(1000, 500, sampling=0.2), seed=1, vocabularies=words)
    rows: list[tuple[int, ...]] = []
    for epoch in (0, 1):
        seen = []
        for update in epoch_of(stream, epoch):
            for batch in update.batches:
                assert max(batch.source.shape[1], batch.target_output.shape[1]) * len(batch.lines) <= 500
                for row, line in enumerate(batch.lines.tolist()):
                    seen.append(line)
                    text = words.source.decode(batch.source[row].tolist())
                    assert text == words.source.decode(store.source_side.sentence(line).tolist())
                    if line == 7:
                        rows.append(tuple(batch.target_output[row].tolist()))
        assert sorted(seen) == list(range(len(store)))
    assert len({tuple(number for number in row if number != PAD) for row in rows}) == 2


def test_a_sampled_sentence_is_never_longer_than_the_longest_stored_one() -> None:
    store = multi30k()
    stream = UpdateStream(store, BatchSettings(1000, 500, sampling=0.9), seed=1, vocabularies=bpe())
    for update in epoch_of(stream):
        for batch in update.batches:
            assert batch.source.shape[1] <= store.source_side.longest + 1
            assert batch.target_output.shape[1] <= store.target_side.longest + 1


BATCHES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=12)


def test_many_rows_are_cut_in_multiples_of_eight() -> None:
    assert partition_batches([(100, 8)], 2) == [[BatchPiece(0, 0, 48)], [BatchPiece(0, 48, 100)]]
    assert partition_batches([(104, 8)], 3) == [
        [BatchPiece(0, 0, 32)],
        [BatchPiece(0, 32, 72)],
        [BatchPiece(0, 72, 104)],
    ]


@given(BATCHES, st.integers(1, 9))
def test_shares_are_equal_but_for_a_row_and_the_tolerance(
    batches: list[tuple[int, int]], processes: int
) -> None:
    fair = sum(rows * width for rows, width in batches) / processes
    for share in partition_batches(batches, processes):
        size = sum((piece.stop - piece.start) * batches[piece.batch][1] for piece in share)
        assert abs(size - fair) <= fair / 8 + max(width for _, width in batches)


def shared_updates(store: TokenStore, process: int, processes: int) -> list[Update]:
    stream = UpdateStream(store, BatchSettings(600, 250), seed=1, share=(process, processes))
    return [update for update, _ in islice(stream.updates(StreamPosition()), 20)]


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_processes_share_the_same_updates(store: TokenStore, processes: int) -> None:
    alone = shared_updates(store, 0, 1)
    shares = [shared_updates(store, process, processes) for process in range(processes)]
    for whole, *parts in zip(alone, *shares, strict=True):
        tokens = sum(batch.target_tokens for part in parts for batch in part.batches)
        assert tokens == whole.target_tokens
        read = np.concatenate([batch.lines for part in parts for batch in part.batches])
        assert np.array_equal(read, np.concatenate([batch.lines for batch in whole.batches]))
        for part in parts:
            assert (part.number, part.epoch) == (whole.number, whole.epoch)
            assert part.target_tokens == whole.target_tokens
            assert np.array_equal(part.lines, whole.lines)
