"""Test sets by name, such as wmt24, as sacrebleu downloads and keeps them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sacrebleu.dataset import DATASETS
from sacrebleu.utils import SACREBLEU_DIR

from deepwire.data.languages import Direction, known_directions
from deepwire.errors import DataError, UsageError
from deepwire.evaluation.texts import metadata


def known_direction(models: Sequence[str]) -> Direction:
    """The one direction of models.

    Raises:
        UsageError: They have several, or theirs is not named.
        ModelError: There is no such model, or it is damaged.
    """
    from deepwire.checkpoint.store import require_translation  # torch

    directions = set[Direction]()
    for model in models:
        described = metadata(model)
        require_translation(model, described)
        directions.update(known_directions(described))
    if len(directions) != 1:
        raise UsageError("--test-set needs a direction", "name it: --direction en-de, or --from and --to")
    return directions.pop()


def test_set_files(name: str, direction: Direction) -> tuple[Path, list[Path]]:
    """The source file and the reference files of a test set; one that is not on this machine is downloaded.

    Raises:
        UsageError: sacrebleu has no such test set, or none of the direction.
        DataError: It cannot be downloaded.
    """
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS) or ["wmt24", "wmt14/full", "multi30k/2016"]
        raise UsageError(
            f"sacrebleu has no test set {name}", f"such as {', '.join(near)}; `sacrebleu --list` shows all"
        )
    pair = str(direction)
    dataset: Any = DATASETS[name]
    if pair not in dataset.langpairs:
        raise UsageError(f"{name} has no {pair}", f"it has {', '.join(sorted(dataset.langpairs))}")
    folder = Path(SACREBLEU_DIR) / name
    begin = f"{name.replace('/', '_')}.{pair}"
    source, references = folder / f"{begin}.src", sorted(folder.glob(f"{begin}.ref*"))
    if source.exists() and references:
        return source, references
    try:
        return Path(dataset.get_source_file(pair)), list(map(Path, dataset.get_reference_files(pair)))
    except (OSError, SystemExit) as error:  # sacrebleu exits where a file's digest or certificate is wrong
        raise DataError(
            f"cannot download {name}: {error}",
            f"put {source.name} and {begin}.ref into {folder}; the variable SACREBLEU names another place",
        ) from error
