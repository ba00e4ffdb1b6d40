"""A plain Transformer in files, of which `inside/ctranslate2_run.py` makes a model in its own environment."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from deepwire.export.ctranslate2_arrays import arrays_of, settings_of
from deepwire.model.translator import TranslationModel


def export(model: TranslationModel, folder: Path) -> None:
    """Write `model.npz` and `settings.json` to a folder.

    Raises:
        ModelError: The model is not one that CTranslate2 computes.
    """
    arrays, settings = arrays_of(model), settings_of(model)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "model.npz", **{name: array.numpy() for name, array in arrays.items()})
    sizes = {"source_vocabulary": model.source_vocabulary, "target_vocabulary": model.target_vocabulary}
    (folder / "settings.json").write_text(json.dumps({**settings, **sizes}, indent=1))
