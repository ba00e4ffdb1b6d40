"""Preparation and batches of a run with several directions, on German, English and spelt-out English."""

from __future__ import annotations

import codecs
from collections import Counter
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from real_text import lines

from deepwire.data.batches.batching import (
    BatchSettings,
    StreamPosition,
    Update,
    UpdateStream,
)
from deepwire.data.batches.epoch_order import tempered
from deepwire.data.data_config import DataConfig
from deepwire.data.languages import TagPlace
from deepwire.data.prepare.build import TemporaryPairs, balanced_lines
from deepwire.data.prepare.prepared import Prepared, prepare
from deepwire.data.selection import check_corpora
from deepwire.data.text.pairs import PairBlock, Texts
from deepwire.data.vocabulary import BOS, EOS, PAD

COUNT = 300


ENGLISH = lines("en", COUNT)
TEXT = {"de": lines("de", COUNT), "en": ENGLISH, "qaa": [codecs.encode(line, "rot13") for line in ENGLISH]}
"""A text in three languages, one of which is English with other letters."""


def write(path: Path, text: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8", newline="\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("many")
    for language, text in TEXT.items():
        write(made / f"train.{language}", text[:260])
        write(made / f"valid.{language}", text[260:])
    return made


def config(folder: Path, **settings: object) -> DataConfig:
    values = {
        "directions": [{"between": ["en"], "and": ["de", "qaa"]}],
        "train": str(folder / "train"),
        "valid": str(folder / "valid"),
        "vocabulary": {"type": "bpe", "size": 700},
        "prepared": str(folder / "prepared"),
        **settings,
    }
    return DataConfig.model_validate(values)


@pytest.fixture(scope="module")
def prepared(folder: Path) -> Prepared:
    return prepare(config(folder), seed=1)


def stream(prepared: Prepared, tag: TagPlace = "source", **settings: int | float | bool) -> UpdateStream:
    assert prepared.languages is not None
    languages = type(prepared.languages)(prepared.languages.directions, tag)
    sizes = BatchSettings(batch_tokens=600, micro_batch_tokens=300, languages=languages, **settings)  # type: ignore[arg-type]
    return UpdateStream(prepared.train, sizes, seed=5, vocabularies=prepared.vocabularies)


def epoch_of(stream: UpdateStream) -> list[Update]:
    updates = (update for update, _ in stream.updates(StreamPosition()))
    return list(takewhile(lambda update: update.epoch == 0, updates))


def test_every_direction_is_stored_with_its_number(prepared: Prepared) -> None:
    assert prepared.languages is not None
    assert prepared.languages.names == ("de", "en", "qaa")
    assert prepared.train.directions is not None
    assert Counter(prepared.train.directions[:].tolist()) == dict.fromkeys(range(4), 260)
    index = {text: line for lines in TEXT.values() for line, text in enumerate(lines)}
    for pair in range(0, len(prepared.train), 37):
        direction = prepared.languages.directions[int(prepared.train.directions[pair])]
        source, target = prepared.train.source_text(pair), prepared.train.target_text(pair)
        assert source == TEXT[direction.source][index[target]]
        assert target == TEXT[direction.target][index[source]]
    assert prepared.folder.name.startswith("de-en-qaa-")


def test_what_is_prepared_is_used_again_until_the_directions_change(folder: Path, prepared: Prepared) -> None:
    assert prepare(config(folder), seed=1).reused
    mixed = prepare(config(folder, sampling_temperature=5, tag="both"), seed=1)
    assert mixed.reused, "sampling and tags are for training"
    fewer = prepare(config(folder, directions=["en-de", "de-en"]), seed=1)
    assert not fewer.reused
    assert fewer.digest != prepared.digest
    balanced = prepare(config(folder, vocabulary={"size": 700, "balance_temperature": 5}), seed=1)
    assert not balanced.reused


def test_duplicates_are_of_one_direction(tmp_path: Path) -> None:
    for language in ("de", "en", "fr"):
        write(tmp_path / f"t.{language}", ["Hotel", "Hotel", f"Haus {language}"])
    directions = {"between": ["en"], "and": ["de", "fr"]}
    data = DataConfig.model_validate({"directions": directions, "train": str(tmp_path / "t")})
    reports = check_corpora(data).reports
    assert {name: report.kept for name, report in reports.items()} == dict.fromkeys(
        ["train en-de", "train de-en", "train en-fr", "train fr-en"], 2
    )


@pytest.mark.parametrize("tag", ["source", "target", "both", "none"])
@pytest.mark.parametrize("bos", [False, True])
def test_tags_stand_where_they_should_and_only_there(prepared: Prepared, tag: TagPlace, bos: bool) -> None:
    assert prepared.languages is not None
    pieces = prepared.vocabularies.source.size
    for update in epoch_of(stream(prepared, tag, source_bos=bos)):
        for batch in update.batches:
            assert batch.target_languages is not None
            tags = pieces + batch.target_languages
            head = [BOS] if bos else []
            for row, line in enumerate(batch.lines.tolist()):
                source, target = (
                    prepared.train.source_side.sentence(line).tolist(),
                    prepared.train.target_side.sentence(line).tolist(),
                )
                own = [int(tags[row])] if tag in ("source", "both") else []
                start = int(tags[row]) if tag in ("target", "both") else BOS
                assert [*head, *own, *source, EOS] == unpadded(batch.source[row])
                assert [start, *target] == unpadded(batch.target_input[row])
                assert [*target, EOS] == unpadded(batch.target_output[row])
            assert max(batch.source.size, batch.target_input.size) <= 300 or len(batch.lines) == 1


def unpadded(row: np.ndarray) -> list[int]:
    return [int(number) for number in row if number != PAD]


def test_temperature_changes_what_an_epoch_reads(folder: Path) -> None:
    small = {"prefix": str(folder / "valid"), "source": "qaa", "target": "en"}
    large = {"prefix": str(folder / "train"), "source": "de", "target": "en"}
    data = config(folder, train=[large, small], sampling_temperature=5)
    made = prepare(data, seed=1)
    assert [share.pairs for share in made.mix] == [260, 260, 40, 40]
    wanted = tempered([260, 260, 40, 40], 5)
    assert [share.of_training for share in made.mix] == pytest.approx(wanted, abs=1e-4)
    assert made.train.directions is not None
    read = np.concatenate([update.lines for update in epoch_of(stream(made))])
    counts = np.bincount(made.train.directions[read], minlength=4)
    assert len(read) == pytest.approx(600, abs=4)
    assert counts / len(read) == pytest.approx(wanted, abs=0.01)


def temporary_pairs(folder: Path, counts: list[int]) -> TemporaryPairs:
    """Corpora 0, 1, ... of so many pairs; language 0 on the source side, the corpus's own on the other."""
    temporary = TemporaryPairs(folder / "staged")
    with temporary:
        for corpus, count in enumerate(counts):
            source, target = (
                Texts.of([f"{language} {corpus} {line}".encode() for line in range(count)])
                for language in (0, corpus + 1)
            )
            temporary.add(PairBlock(corpus, np.arange(count), source, target))
    return temporary


@pytest.mark.parametrize("temperature", [1.0, 3.0, 100.0])
def test_the_text_for_the_vocabulary_is_balanced(tmp_path: Path, temperature: float) -> None:
    counts = [5000, 300, 20]
    temporary = temporary_pairs(tmp_path, counts)
    sides = [(0, 1), (0, 2), (0, 3)]
    found = list(balanced_lines(temporary.path, temporary.chunks, sides, temperature=temperature, most=4000))
    by_language = Counter(line.split()[0] for line in found)
    wanted = tempered([5320, *counts], temperature)
    for language, share in enumerate(wanted):
        assert by_language[str(language)] == pytest.approx(share * 4000, abs=1)
    times = Counter(found)
    for language in range(4):
        repeated = {count for line, count in times.items() if line.startswith(f"{language} ")}
        assert max(repeated) - min(repeated) <= 1, "all lines of a language as often as one another"
