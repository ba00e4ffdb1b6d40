"""deepwire: train, study and serve deep Transformer translation models.

From Python: ``deepwire.load("runs/demo").translate(["..."])`` gives translations,
``deepwire.build(config, vocabulary_size)`` an untrained model. Importing this package imports no torch;
using one of the two does.

The functions ``register_...`` make choices of other packages known, see `deepwire.plugins`.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deepwire.decoding.translator import load as load
    from deepwire.model.config import ModelConfig
    from deepwire.model.encoder_decoder import TranslationModel
    from deepwire.ops.allocator import keep_memory as keep_memory
    from deepwire.plugins import register_aggregation as register_aggregation
    from deepwire.plugins import register_connection as register_connection
    from deepwire.plugins import register_fusion as register_fusion
    from deepwire.plugins import register_initialization as register_initialization
    from deepwire.plugins import register_metric as register_metric
    from deepwire.plugins import register_mixer as register_mixer

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "build",
    "keep_memory",
    "load",
    "register_aggregation",
    "register_connection",
    "register_fusion",
    "register_initialization",
    "register_metric",
    "register_mixer",
]


def build(
    config: ModelConfig | Mapping[str, object] | str | PathLike[str],
    vocabulary_size: int | tuple[int, int],
    *,
    languages: int = 0,
) -> TranslationModel:
    """An untrained model, initialised as its configuration says.

    Args:
        config: The model section: an object, a mapping with the keys of a run file's ``model``, or the name
            of a recipe or run file whose model section to take.
        vocabulary_size: Entries of the vocabulary, or of the source and the target vocabulary, tags of
            languages included.
        languages: How many languages there are, for models with parameters of each; default: those that the
            run file lists.

    Raises:
        UsageError: If the mapping, run file or recipe is wrong, a vocabulary has no room for the special
            entries, or the number of languages is needed and not known.
    """
    from deepwire.config.reader import from_mapping
    from deepwire.errors import UsageError
    from deepwire.model.build import build_model
    from deepwire.model.config import ModelConfig
    from deepwire.runfile import load_run_file

    if isinstance(config, str | PathLike):
        run = load_run_file(str(config)).config
        config, listed = run.model, run.data.languages
        languages = languages or (0 if listed is None else len(listed.names))
    elif not isinstance(config, ModelConfig):
        config = from_mapping(ModelConfig, config, "model")
    source, target = (vocabulary_size,) * 2 if isinstance(vocabulary_size, int) else vocabulary_size
    if min(source, target) < 4:
        raise UsageError(f"vocabulary_size: {min(source, target)} leave no room for the four special entries")
    return build_model(config, source, target, languages=languages)


def __getattr__(name: str) -> object:
    """Import what needs other modules when it is first asked for."""
    if name == "load":
        from deepwire.decoding.translator import load

        return load
    if name == "keep_memory":
        from deepwire.ops.allocator import keep_memory

        return keep_memory
    if name.startswith("register_") and name in __all__:
        from deepwire import plugins

        return getattr(plugins, name)
    raise AttributeError(f"module 'deepwire' has no attribute {name!r}")
