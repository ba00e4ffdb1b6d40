"""Models by their names as a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import metadata_of, read_config
from deepwire.data.languages import Direction
from deepwire.decoding.model_inputs import Warn
from deepwire.decoding.translator import load
from deepwire.serving.engine import Engine


def open_models(
    models: Sequence[str], device: str, precision: str, *, settings: Mapping[str, object], warn: Warn
) -> Engine:
    """Load models, several as an ensemble, that always search: a server draws nothing at random.

    Raises:
        ModelError: A model is missing or damaged, or they do not fit.
        UsageError: A setting is impossible, or the device does not exist.
    """
    searching = {"sampling": None, "n_best": 1}
    translator = load(models, device, precision, settings={**searching, **settings}, warn=warn)
    folder = find_model(models[0])
    metadata = metadata_of(read_config(folder))
    source, target = metadata.get("source"), metadata.get("target")
    known = isinstance(source, str) and isinstance(target, str)
    direction = Direction(str(source), str(target)) if known else None
    # Where the models lie is nobody's business.
    name = " + ".join(Path(model).resolve().name for model in models)
    return Engine(translator, name, direction)
