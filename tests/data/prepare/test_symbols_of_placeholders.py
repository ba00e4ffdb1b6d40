"""`data.placeholders`: what a prepared corpus and its vocabulary hold."""

from __future__ import annotations

import pytest

from deepwire.data.data_config import DataConfig
from deepwire.data.prepare.prepared import prepare
from deepwire.data.text.placeholders import SYMBOLS
from deepwire.data.vocabulary import symbol_ids
from deepwire.errors import DataError

SOURCE = [f"Der Hund {number} sieht https://a.de/{number} im Haus" for number in range(100, 160)]
TARGET = [f"The dog {number} sees https://a.de/{number} in the house" for number in range(100, 160)]


def config(folder, **settings):
    for name, lines in (
        ("train.de", SOURCE),
        ("train.en", TARGET),
        ("valid.de", SOURCE),
        ("valid.en", TARGET),
    ):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    values = {
        "source": "de",
        "target": "en",
        "train": folder / "train",
        "valid": folder / "valid",
        "vocabulary": {"type": "bpe", "size": 400},
        "prepared": folder / "prepared",
        "placeholders": True,
        **settings,
    }
    return DataConfig.model_validate(values)


def test_training_has_symbols_and_validation_text_has_not(tmp_path):
    prepared = prepare(config(tmp_path), seed=1)
    assert prepared.vocabularies.has_symbols
    number, address = SYMBOLS[48], SYMBOLS[0]
    assert prepared.train.source_text(0) == f"Der Hund {number} sieht {address} im Haus"
    assert prepared.train.target_text(0) == f"The dog {number} sees {address} in the house"
    assert prepared.valid.source_text(0) == SOURCE[0]
    ids = symbol_ids(prepared.vocabularies.source)
    for store in (prepared.train, prepared.valid):
        assert {ids[number], ids[address]} <= set(store.source_side.sentence(0).tolist()) & set(
            store.target_side.sentence(0).tolist()
        )


def test_without_the_setting_nothing_changes(tmp_path):
    prepared = prepare(config(tmp_path, placeholders=False), seed=1)
    assert not prepared.vocabularies.has_symbols
    assert prepared.train.source_text(0) == SOURCE[0]
    again = prepare(config(tmp_path), seed=1)
    assert again.digest != prepared.digest


def test_a_vocabulary_that_was_learned_otherwise_is_refused(tmp_path):
    plain = prepare(config(tmp_path, placeholders=False), seed=1)
    existing = {"type": "existing", "folder": plain.folder / "vocabulary"}
    with pytest.raises(DataError, match="has no symbols for placeholders"):
        prepare(config(tmp_path, vocabulary=existing), seed=1)


def test_many_directions(tmp_path):
    settings = {"directions": ["de-en", "en-de"], "source": "source", "target": "target"}
    prepared = prepare(config(tmp_path, **settings), seed=1)
    assert prepared.vocabularies.has_symbols
    assert SYMBOLS[48] in prepared.train.source_text(0)
