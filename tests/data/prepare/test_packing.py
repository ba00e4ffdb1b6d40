"""Packing makes one stream of a text, cut into blocks in which every token is predicted once."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepwire.data.batches.batching import BatchSettings, StreamPosition, UpdateStream, validation_batches
from deepwire.data.batches.token_store import StoreWriter, TokenBlock, TokenStore
from deepwire.data.data_config import TextConfig, Unit
from deepwire.data.prepare.packing import Packing
from deepwire.data.subwords.base import BOS, EOS, PAD, Segmentation
from deepwire.data.text.pairs import Texts

FIRST = 4


def pieces_of(line: str) -> list[int]:
    """A piece for each letter."""
    return [FIRST + ord(letter) - ord("a") for letter in line]


def stream_of(lines: list[str], unit: Unit) -> list[int]:
    """The stream as its description says, document by document."""
    documents: list[list[str]] = [[]]
    for line in lines:
        if unit == "lines":
            documents.append([line])
        elif line:
            documents[-1].append(line)
        else:
            documents.append([])
    stream = [EOS]
    for document in filter(None, documents):
        joined = [token for line in document for token in (BOS, *pieces_of(line))]
        stream += [*joined[1:], EOS]
    return stream


class Blocks:
    """Stands for a store: keeps what is added to the target side."""

    def __init__(self) -> None:
        self.added: list[tuple[TokenBlock, np.ndarray]] = []

    def add(self, source: TokenBlock, target: TokenBlock, direction: int, lines: np.ndarray) -> None:
        self.added.append((target, lines))


def packed_blocks(lines: list[str], text: TextConfig, at_once: int) -> tuple[list[list[int]], str, list[int]]:
    """All blocks of lines that come so many at once, their texts joined, and the lines they begin in."""
    store = Blocks()
    packing = Packing(cast("StoreWriter", store), text, [0])
    for first in range(0, len(lines), at_once):
        part = lines[first : first + at_once]
        segmentation = Segmentation.of([pieces_of(line) for line in part], 64)
        numbers = np.arange(first + 1, first + len(part) + 1)
        packing.add(0, segmentation, Texts.of([line.encode() for line in part]), numbers)
    if any(lines):
        packing.finish()
    blocks, joined, numbers_of = [], b"", []
    for block, numbers in store.added:
        assert int(block.texts.sizes.sum()) == len(block.texts.data)
        rows = np.split(block.pieces.pieces, np.cumsum(block.pieces.lengths)[:-1])
        blocks += [row.tolist() for row in rows]
        joined += block.texts.data
        numbers_of += numbers.tolist()
    return blocks, joined.decode(), numbers_of


@given(
    st.lists(st.text("abc", max_size=5), max_size=12),
    st.sampled_from(["lines", "documents"]),
    st.integers(2, 7),
    st.integers(1, 5),
)
def test_blocks_are_the_stream_cut_after_every_block_of_tokens(
    lines: list[str], unit: Unit, size: int, at_once: int
) -> None:
    lines = lines if unit == "documents" else [line for line in lines if line]
    blocks, text, numbers = packed_blocks(lines, TextConfig(unit=unit, block=size), at_once)
    stream = stream_of(lines, unit)
    # Each block stands behind the token before it, so the first tokens but one are in two blocks.
    assert stream == [EOS, *(token for block in blocks for token in block[1:])]
    assert [block[0] for block in blocks] == stream[: len(stream) - 1 : size]
    assert all(len(block) == size + 1 for block in blocks[:-1])
    # Every byte of the documents once, whatever stands before and between them.
    document_text = "".join(f"{line}\n" for line in lines)
    while unit == "documents" and "\n\n\n" in document_text:
        document_text = document_text.replace("\n\n\n", "\n\n")
    assert text == (document_text.lstrip("\n") if unit == "documents" else document_text)
    assert len(numbers) == len(blocks)
    assert numbers == sorted(numbers)
    if blocks:
        assert numbers[0] == next(number for number, line in enumerate(lines, 1) if line)


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    """Two corpora in blocks of four tokens."""
    counts = [0, 0]
    with StoreWriter(tmp_path / "store", 30, 30, lines=True, packed=True) as writer:
        rows = Packing(writer, TextConfig(block=4), counts)
        for corpus, lines in enumerate((["abc", "de", "f"], ["ghijk", "l"])):
            segmentation = Segmentation.of([pieces_of(line) for line in lines], 30)
            texts = Texts.of([line.encode() for line in lines])
            rows.add(corpus, segmentation, texts, np.arange(1, len(lines) + 1))
        rows.finish()
        writer.finish()
    assert counts == [3, 2]
    return TokenStore(tmp_path / "store")


def test_a_batch_predicts_every_token_once_from_the_one_before_it(store: TokenStore) -> None:
    update, _ = next(UpdateStream(store, BatchSettings(1000, 1000), seed=1).updates(StreamPosition()))
    assert (
        update.target_tokens
        == len(stream_of(["abc", "de", "f"], "lines")) + len(stream_of(["ghijk", "l"], "lines")) - 2
    )
    stream: dict[int, list[int]] = {}
    for batch in [*update.batches, *validation_batches(store, 7)]:
        assert batch.source.shape == (len(batch.lines), 0)
        for line, read, predicted in zip(batch.lines, batch.target_input, batch.target_output, strict=True):
            real = predicted != PAD
            assert (read != PAD).tolist() == real.tolist()
            assert read[real][1:].tolist() == predicted[real][:-1].tolist()
            assert stream.setdefault(int(line), predicted[real].tolist()) == predicted[real].tolist()
    a, b, c, d, e, f, g, h, i, j, k, l = pieces_of("abcdefghijkl")  # noqa: E741 - a letter
    assert [stream[line] for line in sorted(stream)] == [
        [a, b, c, EOS],
        [d, e, EOS, f],
        [EOS],
        [g, h, i, j],
        [k, EOS, l, EOS],
    ]
