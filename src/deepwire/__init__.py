"""deepwire: train, study and serve deep Transformer translation models.

From Python: ``deepwire.train("run.yaml")`` trains, ``deepwire.load("runs/run").translate(["..."])``
translates; docs/howto/python.md shows the rest. Importing this package imports no torch; using it does.

The functions ``register_...`` make choices of other packages known, see `deepwire.plugins`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepwire.api.evaluate import compare as compare
    from deepwire.api.evaluate import evaluate as evaluate
    from deepwire.api.model import Model as Model
    from deepwire.api.model import load as load
    from deepwire.api.parts import TrainingParts as TrainingParts
    from deepwire.api.parts import build as build
    from deepwire.api.parts import training_parts as training_parts
    from deepwire.api.prepare import prepare as prepare
    from deepwire.api.training import Run as Run
    from deepwire.api.training import dry_run as dry_run
    from deepwire.api.training import train as train
    from deepwire.api.training import training_session as training_session
    from deepwire.ops.allocator import keep_memory as keep_memory
    from deepwire.ops.process import configure_process as configure_process
    from deepwire.plugins import register_aggregation as register_aggregation
    from deepwire.plugins import register_connection as register_connection
    from deepwire.plugins import register_fusion as register_fusion
    from deepwire.plugins import register_initialization as register_initialization
    from deepwire.plugins import register_metric as register_metric
    from deepwire.plugins import register_mixer as register_mixer
    from deepwire.plugins import register_optimizer as register_optimizer
    from deepwire.plugins import register_schedule as register_schedule
    from deepwire.training.loop import UpdateResult as UpdateResult
    from deepwire.training.session import Callback as Callback
    from deepwire.training.session import TrainingSession as TrainingSession
    from deepwire.training.state import StopReason as StopReason
    from deepwire.training.validation import Validation as Validation

__version__ = "0.2.0"

_MODULES = frozenset({"errors", "plugins"})
# Name to the module that defines it; imported when the name is first asked for.
_PLACES = {
    "Callback": "training.session",
    "Model": "api.model",
    "Run": "api.training",
    "StopReason": "training.state",
    "TrainingParts": "api.parts",
    "TrainingSession": "training.session",
    "UpdateResult": "training.loop",
    "Validation": "training.validation",
    "build": "api.parts",
    "compare": "api.evaluate",
    "configure_process": "ops.process",
    "dry_run": "api.training",
    "evaluate": "api.evaluate",
    "keep_memory": "ops.allocator",
    "load": "api.model",
    "prepare": "api.prepare",
    "register_aggregation": "plugins",
    "register_connection": "plugins",
    "register_fusion": "plugins",
    "register_initialization": "plugins",
    "register_metric": "plugins",
    "register_mixer": "plugins",
    "register_optimizer": "plugins",
    "register_schedule": "plugins",
    "train": "api.training",
    "training_parts": "api.parts",
    "training_session": "api.training",
}
__all__ = [
    "Callback",
    "Model",
    "Run",
    "StopReason",
    "TrainingParts",
    "TrainingSession",
    "UpdateResult",
    "Validation",
    "__version__",
    "build",
    "compare",
    "configure_process",
    "dry_run",
    "evaluate",
    "keep_memory",
    "load",
    "prepare",
    "register_aggregation",
    "register_connection",
    "register_fusion",
    "register_initialization",
    "register_metric",
    "register_mixer",
    "register_optimizer",
    "register_schedule",
    "train",
    "training_parts",
    "training_session",
]


def __getattr__(name: str) -> object:
    """Import what ``import deepwire`` offers when it is first asked for."""
    if name in _MODULES:
        return import_module(f"deepwire.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'deepwire' has no attribute {name!r}")
    value: object = getattr(import_module(f"deepwire.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Also what was not imported yet."""
    return sorted({*globals(), *_PLACES})
