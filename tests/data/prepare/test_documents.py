"""Documents from text to batches: context is that of the corpus as written, and never of another document."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepwire.data.batches.batching import BatchSettings, StreamPosition, UpdateStream, validation_batches
from deepwire.data.batches.collator import Batch, Collator, ContextSide
from deepwire.data.batches.token_store import StoreWriter, TokenBlock, TokenStore
from deepwire.data.context import ContextConfig, in_front
from deepwire.data.data_config import DataConfig
from deepwire.data.prepare.prepared import Prepared, prepare
from deepwire.data.selection import Selection
from deepwire.data.text import corpus as corpora_module
from deepwire.data.text import files
from deepwire.data.text.corpus import directed

TEXT = """\
aa|AA
bb|BB
aa|AA
bb|BB
cc|CC

aa|AA
|AA
ee|EE
aa|BB BB BB BB BB BB BB BB BB BB BB BB BB BB BB BB BB BB BB BB BB BB
bb|BB
|
bb|BB
"""


def prepared(folder: Path, context: object, **more: object) -> Prepared:
    for name in ("train", "valid"):
        text = [line.split("|") if "|" in line else ["", ""] for line in TEXT.splitlines()]
        (folder / f"{name}.de").write_text("".join(f"{source}\n" for source, _ in text))
        (folder / f"{name}.en").write_text("".join(f"{target}\n" for _, target in text))
    values = {
        "source": "de",
        "target": "en",
        "train": str(folder / "train"),
        "valid": str(folder / "valid"),
        "vocabulary": {"type": "words"},
        "prepared": str(folder / "prepared"),
        "context": context,
        **more,
    }
    return prepare(DataConfig.model_validate(values), seed=1)


def read(made: Prepared, batch: Batch, row: int) -> tuple[str, str, str]:
    """Source, target that is read, and what of it is learned, as people read them; | separates."""
    words = made.vocabularies

    def shown(ids: np.ndarray) -> str:
        pieces = ["|" if number == words.target.size else words.target.pieces([number])[0] for number in ids]
        return " ".join(piece for piece in pieces if piece != "<pad>")

    return shown(batch.source[row]), shown(batch.target_input[row]), shown(batch.target_output[row])


def test_what_filters_drop_is_context_and_empty_lines_and_corpora_end_documents(tmp_path: Path) -> None:
    made = prepared(tmp_path, {"source": 2, "target": 1})
    assert made.valid is not None
    lines = made.train.lines
    assert lines is not None
    # Lines 4 and 7 are as 2 and 1 with what is in front of them, 3 and 13 are not; 10 has an absurd ratio.
    assert lines[: len(made.train)].tolist() == [1, 2, 3, 5, 9, 11, 13]
    stream = UpdateStream(made.train, BatchSettings(1000, 1000, context=made.context), seed=1)
    update, _ = next(stream.updates(StreamPosition()))
    found = {}
    for batch in update.batches:
        for row, pair in enumerate(batch.lines.tolist()):
            found[int(lines[pair])] = read(made, batch, row)
    assert found == {
        1: ("aa </s>", "<s> AA", "AA </s>"),
        2: ("aa | bb </s>", "<s> AA | BB", "BB </s>"),
        3: ("aa | bb | aa </s>", "<s> BB | AA", "AA </s>"),
        5: ("aa | bb | cc </s>", "<s> BB | CC", "CC </s>"),
        9: ("ee </s>", "<s> EE", "EE </s>"),  # a line without a source ends a document
        11: ("ee | aa | bb </s>", f"<s>{22 * ' BB'} | BB", "BB </s>"),
        13: ("bb </s>", "<s> BB", "BB </s>"),
    }
    assert sum(batch.target_tokens for batch in update.batches) == update.target_tokens == 14
    batches = list(validation_batches(made.valid, 100, context=made.context))
    assert sum(len(batch.lines) for batch in batches) == len(made.valid) == 10


@pytest.mark.parametrize("kind", ["files", "tsv", "header", "jsonl"])
def test_duplicates_do_not_depend_on_where_blocks_of_the_text_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    pairs = [line.split("|") if "|" in line else ["", ""] for line in TEXT.splitlines()]
    texts = {
        "train.de": [source for source, _ in pairs],
        "train.en": [target for _, target in pairs],
        "train.tsv": ["\t".join(pair) for pair in pairs],
        "train.header": ["de\ten", *("\t".join(pair) for pair in pairs)],
        "train.jsonl": [json.dumps(dict(zip(("de", "en"), pair, strict=True))) for pair in pairs],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    corpora: dict[str, dict[str, object]] = {
        "files": {"prefix": tmp_path / "train"},
        "tsv": {"tsv": tmp_path / "train.tsv"},
        "header": {"tsv": tmp_path / "train.header", "source_column": "de", "target_column": "en"},
        "jsonl": {"jsonl": tmp_path / "train.jsonl"},
    }
    data = DataConfig.model_validate(
        {"source": "de", "target": "en", "train": [corpora[kind]] * 2, "context": {"source": 1}}
    )
    dropped, blocks = [], []
    for size in (files.CHUNK, 40, 8, 1):
        monkeypatch.setattr(files, "CHUNK", size)
        monkeypatch.setattr(corpora_module, "CHUNK", size)
        read = list(Selection("train", directed(data, "train"), data).read())
        numbers = [(block.pairs.corpus, block.numbers[block.reasons != 0].tolist()) for block in read]
        dropped.append([(corpus, line) for corpus, lines in numbers for line in lines])
        blocks.append(len(read))
    assert blocks[0] == 2 < blocks[-1]
    assert dropped[1:] == [dropped[0]] * 3
    first = [4, 6, 7, 8, 10, 12]  # of these 6, 8, 10 and 12 for other reasons
    first = [line + (kind == "header") for line in first]
    assert [line for corpus, line in dropped[0] if corpus == 0] == first


def test_all_of_a_target_is_learned_where_it_is_asked_for(tmp_path: Path) -> None:
    made = prepared(tmp_path, {"target": 1, "loss": "all"})
    stream = UpdateStream(made.train, BatchSettings(1000, 1000, context=made.context), seed=1)
    update, _ = next(stream.updates(StreamPosition()))
    rows = [read(made, batch, row) for batch in update.batches for row in range(len(batch.lines))]
    assert ("bb </s>", "<s> AA | BB", "AA | BB </s>") in rows
    assert sum(batch.target_tokens for batch in update.batches) == update.target_tokens
    assert update.target_tokens == sum(len(row[2].split()) for row in rows)


documents = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=6), min_size=1, max_size=5)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents, st.integers(1, 4), st.integers(1, 20), st.randoms(use_true_random=False))
def test_context_is_the_latest_that_fits_and_of_the_same_document(lengths, count, most, random) -> None:
    """Every document has words of its own, and its sentences lie anywhere in the store."""
    rows, chains = [], []
    for number, document in enumerate(lengths):
        for place, length in enumerate(document):
            rows.append([10 * number + 4 + place] * length)
            chains.append(rows[-1 - place :])
    order = list(range(len(rows)))
    random.shuffle(order)
    where = {row: place for place, row in enumerate(order)}
    first = {sum(map(len, lengths[:number])) for number in range(len(lengths))}
    previous = np.array([-1 if row in first else where[row - 1] for row in order])
    side = side_of([rows[row] for row in order], previous, count, most)
    found, sizes = side.gather(np.arange(len(rows)))
    assert side.take_lengths(np.arange(len(rows))).tolist() == sizes.tolist()
    for row, tokens in zip(order, np.split(found, np.cumsum(sizes)[:-1]), strict=True):
        *before, own = chains[row]
        assert tokens.tolist() == [*in_front(before[-count:], len(own), most, 99), *own]
        assert len(tokens) <= max(most, len(own))


def side_of(rows: list[list[int]], previous: np.ndarray, count: int, most: int) -> ContextSide:
    with TemporaryDirectory() as folder:
        with StoreWriter(Path(folder) / "s", 99, 99, documents=True) as writer:
            block = TokenBlock.of(rows, ["x"] * len(rows))
            writer.add(block, block)
            writer.finish(len(rows), previous)
        store = TokenStore(Path(folder) / "s")
        side, _ = Collator(store, False, None, ContextConfig(source=count, max_length=most)).sides
    assert isinstance(side, ContextSide)
    return side
