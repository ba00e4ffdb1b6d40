from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.data.batches import token_store as stores
from deepwire.data.batches.token_store import StoreWriter, TokenBlock, TokenStore
from deepwire.errors import DataError

Sentence = tuple[list[int], str]


def write(folder: Path, pairs: list[tuple[Sentence, Sentence]], sizes: tuple[int, int] = (100, 100)) -> Path:
    with StoreWriter(folder, *sizes) as writer:
        for start in range(0, len(pairs), 3):
            part = pairs[start : start + 3]
            source, target = (TokenBlock.of([p[s][0] for p in part], [p[s][1] for p in part]) for s in (0, 1))
            writer.add(source, target)
        writer.finish()
    return folder


PAIRS: list[tuple[Sentence, Sentence]] = [
    (([4, 5, 6], "a\u2028ß"), ([7], "x")),
    (([], ""), ([8, 9], "日本")),
    (([99], "z"), ([], "")),
    (([4, 4], "\r"), ([5, 6, 7, 8], "y y")),
]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    store = TokenStore(write(tmp_path / "s", PAIRS))
    assert len(store) == 4
    for line, (source, target) in enumerate(PAIRS):
        assert store.source_side.sentence(line).tolist() == source[0]
        assert store.target_side.sentence(line).tolist() == target[0]
        assert (store.source_text(line), store.target_text(line)) == (source[1], target[1])
    assert store.source_side.lengths[:].tolist() == [3, 0, 1, 2]
    assert store.target_side.lengths[:].tolist() == [1, 2, 0, 4]
    assert (store.source_side.longest, store.target_side.longest) == (3, 4)
    assert store.source_side.sentence(0).dtype == np.int64


@pytest.mark.parametrize(("size", "dtype"), [(100, "u2"), (65_536, "u2"), (65_537, "u4"), (10**6, "u4")])
def test_numbers_take_the_room_they_need(size: int, dtype: str, tmp_path: Path) -> None:
    top = size - 1
    store = TokenStore(write(tmp_path / "s", [(([top, 4], "a"), ([4], "b"))], (size, 100)))
    assert store.source_side.tokens.dtype == np.dtype(dtype)
    assert store.source_side.sentence(0).tolist() == [top, 4]


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(4, 99), max_size=6), min_size=1, max_size=12),
    data=st.data(),
)
def test_taken_sentences_are_those_asked_for(
    rows: list[list[int]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write(tmp_path_factory.mktemp("t") / "s", [((row, ""), (row[:1], "")) for row in rows])
    side = TokenStore(folder).source_side
    lines = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20)), dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "_AT_ONCE", 3)
        taken = side.take(lines)
    assert [taken.sentence(row).tolist() for row in range(len(lines))] == [rows[line] for line in lines]
    assert taken.lengths.tolist() == [len(rows[line]) for line in lines]
    again = np.arange(len(lines))[::-1]
    assert taken.gather(again)[0].tolist() == side.gather(lines[::-1])[0].tolist()


def test_an_unfinished_store_is_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", 10, 10) as writer:
        writer.add(TokenBlock.of([[4]], ["a"]), TokenBlock.of([[4]], ["a"]))
    with pytest.raises(DataError, match=r"store\.json"):
        TokenStore(tmp_path / "s")


FILES = [
    f"{side}.{name}"
    for side in ("source", "target")
    for name in ("tokens", "lengths", "offsets", "text", "text_offsets")
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", [-1, 1, None])
def test_a_file_of_the_wrong_size_is_named(name: str, change: int | None, tmp_path: Path) -> None:
    path = write(tmp_path / "s", PAIRS) / name
    content = path.read_bytes()
    if change is None:
        path.unlink()
    else:
        path.write_bytes(content[:-1] if change < 0 else content + b"\0")
    with pytest.raises(DataError, match=name):
        TokenStore(tmp_path / "s")


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from([*FILES, "pair.directions", "pair.lines"]),
    where=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
)
def test_no_flipped_bit_stays_unseen(
    name: str, where: float, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("f") / "s"
    with StoreWriter(folder, 100, 100, directions=True, lines=True) as w:
        for number, (source, target) in enumerate(PAIRS * 5):
            first, second = (TokenBlock.of([one[0]], [one[1]]) for one in (source, target))
            w.add(first, second, 0, np.array([number]))
        w.finish()
        TokenStore(folder).check()
        content = bytearray((folder / name).read_bytes())
        content[int(where * len(content))] ^= 1 << bit
        (folder / name).write_bytes(content)
        with pytest.raises(DataError, match=name):
            TokenStore(folder).check()
