"""Analyses of trained models: each returns a `Finding`, which `report` shows as text, JSON, plots or HTML.

``subject`` opens models and texts; other modules are one analysis each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from deepwire.errors import LogFn, UsageError

if TYPE_CHECKING:
    from deepwire.lab.finding import Finding

# Analyses of any model, by name: `module:function`, called with a MODEL name.
STANDARD = {
    "weights": "deepwire.lab.weights:analyse_weights",
    "gates": "deepwire.lab.gates:analyse_gates",
    "gradients": "deepwire.lab.signals:analyse_gradients",
}

# All analyses of one model.
OF_A_MODEL = {
    **STANDARD,
    "signal": "deepwire.lab.signals:analyse_signal",
    "similarity": "deepwire.lab.layers:analyse_similarity",
    "linearise": "deepwire.lab.layers:analyse_linearity",
}


def analyse_all(models: Sequence[str], skipped: LogFn) -> Iterator[Finding]:
    """Runs all standard analyses that apply to each MODEL name; `skipped` hears why others do not.

    Raises:
        DeepwireError: An analysis fails for another reason.
    """
    for model in models:
        for name, path in STANDARD.items():
            module, _, function = path.partition(":")
            analyse = cast("Callable[[str], Finding]", getattr(import_module(module), function))
            try:
                yield analyse(model)
            except UsageError as error:
                skipped(f"{name}: {error}")
