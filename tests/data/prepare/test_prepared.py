from __future__ import annotations

import errno
import gzip
import hashlib
import json
import lzma
import multiprocessing
import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from real_text import lines

from deepwire.data import parallel_map
from deepwire.data.batches.token_store import StoreWriter
from deepwire.data.data_config import DataConfig
from deepwire.data.prepare import build
from deepwire.data.prepare import prepared as prepared_module
from deepwire.data.prepare.prepared import Prepared, prepare
from deepwire.errors import DataError, ResourceError

COUNT = 150
GERMAN, ENGLISH = lines("de", COUNT), lines("en", COUNT)


def write(path: Path, text: list[str], *, old: bool = True) -> Path:
    path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8", newline="\n")
    if old:
        os.utime(path, ns=(10**18, 10**18 + len(text)))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "train.de", GERMAN)
    write(tmp_path / "train.en", ENGLISH)
    write(tmp_path / "valid.de", [*GERMAN[:20], "ein sehr " * 500 + "langer Satz"])
    write(tmp_path / "valid.en", [*ENGLISH[:20], "a very " * 500 + "long sentence"])
    return tmp_path


def config(folder: Path, **settings: object) -> DataConfig:
    values = {
        "source": "de",
        "target": "en",
        "train": str(folder / "train"),
        "valid": str(folder / "valid"),
        "vocabulary": {"type": "words"},
        "prepared": str(folder / "prepared"),
        **settings,
    }
    return DataConfig.model_validate(values)


def prepare_now(folder: Path, **settings: object) -> Prepared:
    return prepare(config(folder, **settings), seed=1)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in (folder / "prepared").glob(".*") if path.suffix != ".lock"]


def test_the_store_holds_the_text_segmented(folder: Path) -> None:
    made = prepare_now(folder, vocabulary={"size": 600})
    assert len(made.train) == COUNT
    assert not made.reused
    for line in range(0, COUNT, 37):
        assert made.train.source_text(line) == GERMAN[line]
        assert made.train.target_text(line) == ENGLISH[line]
        assert made.train.source_side.sentence(line).tolist() == made.vocabularies.source.encode(GERMAN[line])
        assert made.train.target_side.sentence(line).tolist() == made.vocabularies.target.encode(
            ENGLISH[line]
        )
    assert made.folder.name == f"de-en-{made.digest[:12]}"
    assert leftovers(folder) == []


def test_unchanged_is_used_again(folder: Path) -> None:
    first = prepare_now(folder)
    marks = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")}
    again = prepare(config(folder), seed=2)
    assert again.reused
    assert (again.folder, again.digest, again.report) == (first.folder, first.digest, first.report)
    assert {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")} == marks


@pytest.mark.parametrize(
    "change",
    [
        {"vocabulary": {"type": "words", "joint": False}},
        {"filters": {"max_length": 20}},
        {"filters": {"drop_duplicates": False}},
        {"on_bad_utf8": "skip"},
        {"valid": None},
    ],
)
def test_other_settings_are_prepared_apart(folder: Path, change: dict[str, object]) -> None:
    first, other = prepare_now(folder), prepare_now(folder, **change)
    assert not other.reused
    assert other.digest != first.digest
    assert prepare_now(folder).reused


@pytest.mark.parametrize(
    "change",
    [
        {"vocabulary": {"size": 500, "sampling": 0.1}},
        {"source_bos": True},
        {"test": "elsewhere"},
        {"train": [{"prefix": "PREFIX", "weight": 3.0, "name": "other"}]},
    ],
)
def test_settings_of_training_prepare_nothing_anew(folder: Path, change: dict[str, object]) -> None:
    prepare_now(folder, vocabulary={"size": 500})
    change = json.loads(json.dumps(change).replace("PREFIX", str(folder / "train")))
    assert prepare_now(folder, **{"vocabulary": {"size": 500}, **change}).reused


def test_moved_text_and_the_same_text_compressed_or_not(folder: Path, tmp_path: Path) -> None:
    first = prepare_now(folder)
    (tmp_path / "new").mkdir()
    for side in ("de", "en"):
        (folder / f"train.{side}").rename(tmp_path / "new" / f"corpus.{side}")
    assert prepare_now(folder, train=str(tmp_path / "new" / "corpus")).folder == first.folder


def test_codes_are_part_of_the_fingerprint(folder: Path) -> None:
    codes = write(folder / "codes", ["#version: 0.2", "e n", "e r</w>"])
    vocabulary = {"type": "subword_nmt", "codes": str(codes)}
    first = prepare_now(folder, vocabulary=vocabulary)
    assert prepare_now(folder, vocabulary=vocabulary).reused
    assert prepare_now(folder, vocabulary={**vocabulary, "min_count": 3}).digest != first.digest
    write(codes, ["#version: 0.2", "e n", "e r</w>", "i n"])
    assert prepare_now(folder, vocabulary=vocabulary).digest != first.digest


def test_several_corpora_are_parts_with_weights(folder: Path) -> None:
    write(folder / "more.tsv", [f"{a} zwei\t{b} two" for a, b in zip(GERMAN[:50], ENGLISH[:50], strict=True)])
    train = [{"prefix": str(folder / "train"), "weight": 0.5}, {"tsv": str(folder / "more.tsv"), "weight": 2}]
    made = prepare_now(folder, train=train)
    assert [(part.start, part.stop, part.weight) for part in made.train.parts] == [
        (0, COUNT, 0.5),
        (COUNT, COUNT + 50, 2),
    ]
    assert made.train.source_text(COUNT) == f"{GERMAN[0]} zwei"
    train[0]["weight"] = 7.0
    again = prepare_now(folder, train=train)
    assert again.reused
    assert again.train.parts[0].weight == 7.0


def test_every_pair_knows_its_line(folder: Path) -> None:
    write(folder / "train.de", ["", *GERMAN[:100], GERMAN[0], "kurz"])
    write(folder / "train.en", ["x", *ENGLISH[:100], ENGLISH[0], "short"])
    write(folder / "more.tsv", ["\tnichts", "eins\tone", "zwei\ttwo"])
    train = [str(folder / "train"), {"tsv": str(folder / "more.tsv"), "name": "more"}]
    made = prepare_now(folder, train=train)
    lines = {
        "train": (folder / "train.de").read_text().split("\n"),
        "more": [line.partition("\t")[0] for line in (folder / "more.tsv").read_text().split("\n")],
    }
    assert len(made.train) == 103
    for pair in range(103):
        name, _, line = made.place(pair).rpartition(":")
        assert lines[Path(name).name][int(line) - 1] == made.train.source_text(pair)


def files_of(made: Prepared) -> dict[str, bytes]:
    return {
        str(path.relative_to(made.folder)): path.read_bytes()
        for path in made.folder.rglob("*")
        if path.is_file()
    }


def write_in_every_form(folder: Path) -> list[dict[str, object]]:
    """Corpora in two compressed files, TSV and JSONL, with something to drop for every reason."""
    source = ["\ufeffein Satz", *GERMAN[:60], "", GERMAN[3], "viel " * 350, "mit\r", "a\0b", "so " * 60]
    target = ["a sentence", *ENGLISH[:60], "x", ENGLISH[3], "a lot", "with\r", "ab", "so " * 60]
    sides = [("".join(f"{line}\n" for line in side)).encode() for side in (source, target)]
    (folder / "two.de.gz").write_bytes(gzip.compress(sides[0] + b"kein \xff Text\n"))
    (folder / "two.en.xz").write_bytes(lzma.compress(sides[1] + b"no text\n"))
    rows = ["wort\tword", *(f"{a}\t{b}" for a, b in zip(GERMAN[40:130], ENGLISH[40:130], strict=True)), "\t"]
    write(folder / "table.tsv", rows)
    records = [{"en": b, "de": a} for a, b in zip(GERMAN[100:], ENGLISH[100:], strict=True)]
    text = "".join(f"{json.dumps(record)}\n" for record in [*records, {"de": "a\nb", "en": "A B"}])
    (folder / "records.jsonl").write_bytes(zstandard.compress(text.encode()))
    return [
        {"prefix": str(folder / "two")},
        {"tsv": str(folder / "table.tsv"), "source_column": "wort", "target_column": "word"},
        {"jsonl": str(folder / "records.jsonl")},
    ]


def test_one_process_and_several_make_the_same_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepwire.data.prepare.build.CHUNK_PAIRS", 64)
    monkeypatch.setattr("deepwire.data.text.files.CHUNK", 4000)
    monkeypatch.setattr("deepwire.data.text.corpus.CHUNK", 4000)
    train, filters = write_in_every_form(folder), {"max_length": 50, "drop_copies": True}
    settings = {"train": train, "valid": None, "filters": filters, "on_bad_utf8": "skip"}
    settings["vocabulary"] = {"size": 500}
    alone = files_of(prepare_now(folder, **settings))
    monkeypatch.setattr(build, "PAIRS_FOR_PROCESSES", 1)
    monkeypatch.setattr("deepwire.data.filters.SERIAL_BLOCKS", 1)
    monkeypatch.setattr(parallel_map, "processes", lambda: 2)
    together = prepare_now(folder, **settings, prepared=str(folder / "elsewhere"))
    assert files_of(together) == alone
    dropped = {reason: found["count"] for reason, found in together.report["train"]["dropped"].items()}
    assert dropped.pop("too_long") > 10
    assert dropped == {
        "duplicate": 1 + 20 + 30,
        "one_side_empty": 1,
        "both_empty": 1,
        "ratio": 1,
        "nul": 1,
        "copy": 1,
        "bad_utf8": 1,
    }
    report = json.loads((together.folder / "report.json").read_bytes())
    assert report["train"]["repaired"] == {
        "carriage_returns": 2,
        "byte_order_marks": 1,
        "replaced_lines": 0,
        "joined_lines": 1,
    }


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(folder: Path) -> None:
    peaks = []
    for copies in (12, 40):  # more than one chunk, and many
        write(folder / "train.de", GERMAN * copies)
        write(folder / "train.en", ENGLISH * copies)
        tracemalloc.start()
        prepare_now(folder, filters={"drop_duplicates": False})
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.25 * peaks[0] + 500_000


def test_unchanged_files_are_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = hashlib.file_digest

    clock = [2e9]

    def count(file: object, digest: Callable[[], object]) -> object:
        read.append(Path(file.name).name)  # type: ignore[attr-defined]
        clock[0] += 60  # a large file, and a slow disk
        return original(file, digest)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", count)
    monkeypatch.setattr(prepared_module, "time", SimpleNamespace(time=lambda: clock[0]))
    prepare_now(folder)
    assert sorted(read) == ["train.de", "train.en", "valid.de", "valid.en"]
    prepare_now(folder)
    assert len(read) == 4
    changed = write(folder / "train.de", [*GERMAN[:-1], "neu"], old=False)
    for _ in range(2):
        clock[0] = changed.stat().st_mtime
        prepare_now(folder)
    assert read[4:] == ["train.de", "train.de"]  # so young that it could change unseen


def content_of(made: Prepared) -> list[object]:
    """All that anyone reads of a prepared corpus."""
    sides = [
        side for store in (made.train, made.valid) if store for side in (store.source_side, store.target_side)
    ]
    lines = [(side.sentence(n).tolist(), side.text(n)) for side in sides for n in range(len(side.lengths))]
    places = [made.place(pair) for pair in range(len(made.train))]
    return [lines, places, made.train.parts, made.report, made.vocabularies.digest, made.folder, made.corpora]


def test_a_flipped_byte_anywhere_is_mended(folder: Path) -> None:
    for side, text in (("de", GERMAN), ("en", ENGLISH)):
        write(folder / f"train.{side}", text[:40])
        write(folder / f"valid.{side}", text[40:45])
    first = prepare_now(folder)
    expected, kept = content_of(first), files_of(first)
    dice = random.Random(1)
    for name, whole in sorted(kept.items()):
        damaged, place = bytearray(whole), dice.randrange(len(whole))
        damaged[place] ^= 1 << dice.randrange(8)
        (first.folder / name).write_bytes(damaged)
        found = content_of(prepare_now(folder))
        assert found == expected, (name, place)
        assert files_of(first) == kept


def test_what_may_not_be_read_is_not_taken_for_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = prepare_now(folder)
    tokens = made.folder / "train" / "source.tokens"
    original = os.open

    def forbidden(path: Path, *args: int, **kwargs: int) -> int:
        if path == tokens:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", forbidden)
        with pytest.raises(DataError, match=r"source\.tokens: cannot read: Permission denied"):
            prepare_now(folder)
    assert prepare_now(folder).reused


def test_a_folder_of_an_earlier_version_is_made_again(folder: Path) -> None:
    first = prepare_now(folder)
    whole = files_of(first)
    header = json.loads((first.folder / "prepared.json").read_bytes())
    early = {name: header[name] for name in ("digest", "corpora", "made_from")}
    (first.folder / "prepared.json").write_text(json.dumps(early, indent=1))
    again = prepare_now(folder)
    assert not again.reused
    assert (again.digest, files_of(again)) == (first.digest, whole)


def test_a_full_disk_is_one_error_and_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "finish", full)
        with pytest.raises(ResourceError, match="No space left") as raised:
            prepare_now(folder)
        assert str(folder / "prepared") in raised.value.message
        assert "free some space" in raised.value.hint
        assert leftovers(folder) == []
    assert len(prepare_now(folder).train) == COUNT


def test_an_interruption_leaves_nothing_and_the_next_run_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepared_module, "write_checked", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare_now(folder)
    assert leftovers(folder) == []
    made = prepare_now(folder)
    stale = made.folder.with_name(f".{made.folder.name}.0123abcd.tmp")
    stale.mkdir()
    (made.folder / "prepared.json").unlink()
    assert not prepare_now(folder).reused
    assert not stale.exists()


def prepare_in_process(folder: str, results: multiprocessing.queues.Queue[tuple[bool, str]]) -> None:
    made = prepare_now(Path(folder), vocabulary={"size": 500})
    results.put((made.reused, made.vocabularies.digest + str(made.train.source_side.sentence(5).tolist())))


def test_two_processes_at_once_make_it_once(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=prepare_in_process, args=(str(folder), results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join()
    assert sorted(reused for reused, _ in found) == [False, True, True]
    assert len({content for _, content in found}) == 1
    assert leftovers(folder) == []


def test_a_stream_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for corpus in ({"tsv": "-"}, {"tsv": str(folder / "pipe")}):
        with pytest.raises(DataError, match="a stream cannot be prepared"):
            prepare_now(folder, train=corpus)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "train.de").unlink(), r"train\.de: no such file"),
        (
            lambda f: write(f / "train.de", GERMAN[:-1]),
            rf"line counts differ: .*train\.de {COUNT - 1}, .*train\.en {COUNT}",
        ),
        (lambda f: write(f / "valid.de", [""] * 21), "valid: none of 21 pairs can be used"),
        (lambda f: [write(f / f"train.{s}", ["x " * 900] * 3) for s in ("de", "en")], "none of 3 pairs"),
    ],
)
def test_bad_text_is_one_error_and_leaves_nothing(
    folder: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(folder)
    with pytest.raises(DataError, match=message):
        prepare_now(folder)
    assert leftovers(folder) == []
    assert list((folder / "prepared").glob("de-en-*")) == []
