"""Analyses of trained models: each gives a `Finding`, which `report` shows as text, JSON, plots or HTML.

``subject`` opens what is analysed; the other folders hold one analysis each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from deepwire.errors import DataError, Tell, UsageError

if TYPE_CHECKING:
    from deepwire.lab.report.finding import Finding

# By the name of the analysis: a function of a MODEL name.
STANDARD = {
    "weights": "deepwire.lab.internals.connection_weights:analyse_weights",
    "gates": "deepwire.lab.internals.gates:analyse_gates",
    "gradients": "deepwire.lab.internals.gradient_norms:analyse_gradients",
}

# With that which also wants the training text; a report has it for language models alone.
OF_LANGUAGE_MODELS = {
    **STANDARD,
    "signal": "deepwire.lab.internals.signal_propagation:analyse_signal",
}

# All of one model.
OF_A_MODEL = {
    **OF_LANGUAGE_MODELS,
    "similarity": "deepwire.lab.depth.layer_similarity:analyse_similarity",
}


def analyse_all(models: Sequence[str], skipped: Tell) -> Iterator[Finding]:
    """Every analysis of every model that applies to it; of a language model also that of its signals.

    Args:
        models: MODEL names.
        skipped: Receives one line for each analysis that does not apply, or that needs to be told more.

    Raises:
        DeepwireError: An analysis fails for another reason.
    """
    for model in models:
        for label, place in (OF_LANGUAGE_MODELS if _is_language_model(model) else STANDARD).items():
            module, _, name = place.partition(":")
            analyse = cast("Callable[[str], Finding]", getattr(import_module(module), name))
            # Its training text may be gone, which the other analyses do not need.
            apart = (UsageError, DataError) if label not in STANDARD else (UsageError,)
            try:
                yield analyse(model)
            except apart as error:
                skipped(f"{label}: {error}")


def _is_language_model(model: str) -> bool:
    from deepwire.checkpoint.model_path import find_model  # torch
    from deepwire.checkpoint.store import read_metadata

    return read_metadata(find_model(model)).get("text") is not None
