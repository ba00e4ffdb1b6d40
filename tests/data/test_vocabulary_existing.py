from __future__ import annotations

from pathlib import Path

import pytest

from deepwire.data.data_config import DataConfig
from deepwire.data.prepare.prepared import prepare
from deepwire.data.vocabulary import Vocabularies, existing
from deepwire.data.vocabulary_config import ExistingConfig
from deepwire.errors import DataError


def config(folder: Path, text: str, vocabulary: dict[str, object]) -> DataConfig:
    (folder / "train.src").write_text(text)
    (folder / "train.trg").write_text(text)
    return DataConfig.model_validate(
        {
            "source": "src",
            "target": "trg",
            "train": str(folder / "train"),
            "prepared": str(folder / "prepared"),
            "vocabulary": vocabulary,
        }
    )


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    made = prepare(config(tmp_path, "a b\nc d\n", {"type": "words"}), seed=1)
    made.vocabularies.save(tmp_path / "model" / "vocabulary")
    return tmp_path / "model"


@pytest.mark.parametrize("place", ["", "vocabulary"])
def test_other_text_is_segmented_by_it(tmp_path: Path, stored: Path, place: str) -> None:
    made = prepare(config(tmp_path, "d a x\nb b b\n", {"type": "existing", "folder": stored / place}), seed=1)
    assert made.vocabularies.digest == Vocabularies.load(stored / "vocabulary").digest
    assert made.vocabularies.type == "words"
    assert len(made.train) == 2
    again = prepare(
        config(tmp_path, "d a x\nb b b\n", {"type": "existing", "folder": stored / place}), seed=1
    )
    assert again.reused


def test_a_run_stands_for_its_checkpoints(tmp_path: Path, stored: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for update in ("000010", "000020"):
        Vocabularies.load(stored / "vocabulary").save(
            tmp_path / "run" / "checkpoints" / f"update-{update}" / "vocabulary"
        )
    folder, digest = existing(ExistingConfig(folder=tmp_path / "run"))
    assert folder.parent.name == "update-000020"
    assert digest == Vocabularies.load(stored / "vocabulary").digest


def test_another_vocabulary_means_another_preparation(tmp_path: Path, stored: Path) -> None:
    wanted = {"type": "existing", "folder": stored}
    first = prepare(config(tmp_path, "a b\n", wanted), seed=1)
    learned = prepare(config(tmp_path, "x y\n", {"type": "words"}), seed=1)
    learned.vocabularies.save(stored / "vocabulary")
    second = prepare(config(tmp_path, "a b\n", wanted), seed=1)
    assert not second.reused
    assert second.digest != first.digest


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"joint": False}, "the vocabulary is joint"),
        ({"sampling": 0.1}, "words cannot be segmented at random"),
        ({"folder": "nowhere"}, "nowhere has no vocabulary"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, stored: Path, settings: dict[str, object], message: str
) -> None:
    wanted = {"type": "existing", "folder": stored, **settings}
    with pytest.raises(DataError, match=message):
        prepare(config(tmp_path, "a b\n", wanted), seed=1)
