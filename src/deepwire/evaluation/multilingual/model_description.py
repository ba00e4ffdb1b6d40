"""What a stored model says about its languages, read without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import CONFIG, read_metadata
from deepwire.data.languages import Direction, Languages
from deepwire.errors import ModelError


@dataclass(frozen=True)
class ModelDescription:
    """The languages of a model.

    Attributes:
        folder: The model directory that its name stands for.
        directions: What it was trained on.
        languages: Those of a model of many directions, which takes a target language; None otherwise.
        training_pairs: Pairs of each direction in the training text, where known.
    """

    folder: Path
    directions: tuple[Direction, ...]
    languages: Languages | None = None
    training_pairs: Mapping[Direction, int] = field(default_factory=dict)


def describe(name: str) -> ModelDescription:
    """The languages of a MODEL.

    Raises:
        ModelError: There is no such model, or its description is damaged.
    """
    folder = find_model(name)
    metadata = read_metadata(folder)
    languages = Languages.from_metadata(metadata)
    if languages is not None:
        return ModelDescription(folder, languages.directions, languages, _training_pairs(metadata))
    source, target = metadata.get("source"), metadata.get("target")
    if not (isinstance(source, str) and isinstance(target, str)):
        raise ModelError(f"{folder / CONFIG}: does not name the languages of the model")
    return ModelDescription(folder, (Direction(source, target),))


def _training_pairs(metadata: Mapping[str, object]) -> dict[Direction, int]:
    """Pairs of each direction; none where an earlier version of training did not record them."""
    pairs = metadata.get("training_pairs")
    if not isinstance(pairs, dict):
        return {}
    return {Direction.parse(name): size for name, size in pairs.items() if isinstance(size, int)}
