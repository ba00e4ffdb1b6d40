from __future__ import annotations

import gzip
import lzma
import os
import threading
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.data.text import files
from deepwire.data.text.files import BadLine, ReadNotes, find_text, read_lines
from deepwire.errors import DataError

COMPRESS = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}

ODD = "first\u2028same\nse\u0085cond\vsame\fsame\nthird\rsame\x1csame\n\nمرحبا \u200fb\n👩\u200d👩\u200d👧"


def write(folder: Path, data: bytes, name: str = "text") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", COMPRESS)
def test_every_compression_is_known_by_content_and_only_newline_ends_a_line(
    tmp_path: Path, kind: str
) -> None:
    path = write(tmp_path, COMPRESS[kind]((ODD + "\n").encode()))
    assert list(read_lines(path)) == ODD.split("\n")


@pytest.mark.parametrize("kind", COMPRESS)
def test_parts_compressed_one_after_the_other_are_one_text(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, b"".join(COMPRESS[kind](part) for part in (b"a\nb", b"", b"c\n", b"d")))
    assert list(read_lines(path)) == ["a", "bc", "d"]


@pytest.mark.parametrize("kind", ["gzip", "xz", "zstd"])
@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_cut_compressed_data_is_an_error(tmp_path: Path, kind: str, keep: float) -> None:
    data = COMPRESS[kind](os.urandom(1000).hex().encode() + b"\n")
    path = write(tmp_path, data[: int(keep * len(data))])
    with pytest.raises(DataError, match=f"{path}: ends in the middle of compressed data"):
        list(read_lines(path))


def test_mark_and_carriage_returns_are_removed_and_counted(tmp_path: Path) -> None:
    notes = ReadNotes()
    path = write(tmp_path, b"\xef\xbb\xbfa\r\nb\r\r\n\xef\xbb\xbfc\n")
    assert list(read_lines(path, notes=notes)) == ["a", "b\r", "\ufeffc"]
    assert (notes.byte_order_marks, notes.carriage_returns) == (1, 2)


def test_bad_utf8_says_file_line_and_byte(tmp_path: Path) -> None:
    path = write(tmp_path, b"fine\n" * 70000 + b"ab\xffc\nfine\n")
    with pytest.raises(DataError, match=f"^{path}:70001:3: not UTF-8 \\(byte 0xff\\)"):
        list(read_lines(path))


def test_bad_utf8_can_be_skipped_or_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, b"a\nb\xff\xed\xa0\x80\nc\n")
    notes = ReadNotes()
    assert list(read_lines(path, on_bad_utf8="skip", notes=notes)) == [
        "a",
        BadLine("bad_utf8", "b" + "\ufffd" * 4),
        "c",
    ]
    assert notes.replaced_lines == 0
    assert list(read_lines(path, on_bad_utf8="replace", notes=notes)) == ["a", "b" + "\ufffd" * 4, "c"]
    assert notes.replaced_lines == 1


def test_nul_marks_its_line_only(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path, b"a\nb\0\r\nc\n"))) == ["a", BadLine("nul", "b\0"), "c"]


@pytest.mark.parametrize("excess", [0, 1, 3 << 20])
def test_a_line_is_too_long_above_the_limit_only(tmp_path: Path, excess: int) -> None:
    long = b"x" * (files.MAX_LINE_BYTES + excess)
    first, middle, last = read_lines(write(tmp_path, b"a\n" + long + b"\nb\n"))
    assert (first, last) == ("a", "b")
    assert middle == (BadLine("too_long", "x" * files.HEAD_BYTES) if excess else long.decode())


def test_memory_stays_small_whatever_the_line_and_its_compression(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(b"y" * 100_000_000 + b"\nb\n", 1))
    tracemalloc.start()
    try:
        assert list(read_lines(path))[1] == "b"
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_missing_files_suggest_near_names(tmp_path: Path) -> None:
    write(tmp_path, b"", "train.de.gz")
    with pytest.raises(DataError, match=r"train\.de: no such file \(did you mean train\.de\.gz\?\)"):
        list(read_lines(tmp_path / "train.de"))
    with pytest.raises(DataError, match=r"the folder .* does not exist"):
        list(read_lines(tmp_path / "none" / "train.de"))
    with pytest.raises(DataError, match=r"train\.en: no such file \(also tried \.gz, \.zst, \.xz\)"):
        find_text(tmp_path / "train", "en")


def test_a_pipe_is_read_as_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def feed() -> None:
        with path.open("wb", buffering=0) as pipe:
            for byte in gzip.compress(b"a\nb\n"):
                pipe.write(bytes([byte]))

    writer = threading.Thread(target=feed)
    writer.start()
    assert list(read_lines(path)) == ["a", "b"]
    writer.join()


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(
        st.sampled_from([b"a", b"\n", b"\r", b"\0", b"\xff", b"\xc3\xa4", b"xxxxxxxx"]), max_size=40
    ),
    chunks=st.lists(st.integers(1, 7), min_size=1, max_size=30),
)
def test_lines_do_not_depend_on_how_bytes_arrive(text: list[bytes], chunks: list[int]) -> None:
    data = b"".join(text)
    pieces: list[bytes] = []
    start = 0
    while start < len(data):
        size = chunks[len(pieces) % len(chunks)]
        pieces.append(data[start : start + size])
        start += size

    def lines(parts: list[bytes]) -> list[files.Line]:
        decoder = files.Decoder(Path("x"), "skip", ReadNotes())
        return [line for block in files._line_blocks(iter(parts)) for line in decoder.decode(block)]

    whole = lines([data]) if data else []
    assert lines(pieces) == whole
    assert len(whole) == data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
