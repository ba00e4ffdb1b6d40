"""Analyses of trained models: each returns a `Finding`, which `report` shows as text, JSON, plots or HTML.

``subject`` opens models and texts; other modules are one analysis each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from deepwire.errors import DataError, LogFn, UsageError

if TYPE_CHECKING:
    from deepwire.lab.finding import Finding

# Analyses of any model, by name: `module:function`, called with a MODEL name.
STANDARD = {
    "weights": "deepwire.lab.weights:analyse_weights",
    "gates": "deepwire.lab.gates:analyse_gates",
    "gradients": "deepwire.lab.signals:analyse_gradients",
}

# In a report of a language model: also one that reads the training text.
OF_LANGUAGE_MODELS = {
    **STANDARD,
    "signal": "deepwire.lab.signals:analyse_signal",
}

# All analyses of one model.
OF_A_MODEL = {
    **OF_LANGUAGE_MODELS,
    "similarity": "deepwire.lab.layers:analyse_similarity",
}


def analyse_all(models: Sequence[str], skipped: LogFn) -> Iterator[Finding]:
    """Runs all analyses that apply to each model.

    Args:
        models: MODEL names.
        skipped: Called with one line for each analysis that does not apply or needs more arguments.

    Raises:
        DeepwireError: An analysis fails for another reason.
    """
    for model in models:
        analyses = OF_LANGUAGE_MODELS if _is_language_model(model) else STANDARD
        for name, path in analyses.items():
            module, _, function = path.partition(":")
            analyse = cast("Callable[[str], Finding]", getattr(import_module(module), function))
            # The training text, which only others than the standard analyses read, may be gone.
            skippable = (UsageError,) if name in STANDARD else (UsageError, DataError)
            try:
                yield analyse(model)
            except skippable as error:
                skipped(f"{name}: {error}")


def _is_language_model(model: str) -> bool:
    from deepwire.checkpoint.model_path import find_model  # torch
    from deepwire.checkpoint.store import read_metadata

    return read_metadata(find_model(model)).get("text") is not None
