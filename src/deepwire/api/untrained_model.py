"""Untrained models from Python."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath

from deepwire.config.settings_reader import from_mapping
from deepwire.data.prepare.prepared import Prepared
from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.encoder_decoder import TranslationModel
from deepwire.runfile import load_run_file


def build(
    config: ModelConfig | Mapping[str, object] | str | PathLike[str],
    vocabulary_size: int | tuple[int, int] | Prepared,
    *,
    languages: int = 0,
) -> TranslationModel:
    """An untrained model, initialised as its configuration says, from torch's random numbers.

    Args:
        config: The model section: an object, a mapping with the keys of a run file's ``model``, or the name
            of a recipe or run file whose model section to take.
        vocabulary_size: Entries of the vocabulary, or of the source and the target vocabulary, tags of
            languages included; or the prepared text that the model is for.
        languages: How many languages there are, for models with parameters of each; default: those of the
            prepared text, or those that the run file lists.

    Raises:
        UsageError: If the mapping, run file or recipe is wrong, a vocabulary has no room for the special
            entries, or the number of languages is needed and not known.
    """
    if isinstance(config, str | PathLike):
        run = load_run_file(fspath(config)).config
        config, listed = run.model, run.data.languages
        languages = languages or (0 if listed is None else len(listed.names))
    elif not isinstance(config, ModelConfig):
        config = from_mapping(ModelConfig, config, "model")
    if isinstance(vocabulary_size, Prepared):
        source, target, of_text = vocabulary_size.model_sizes
        languages = languages or of_text
    else:
        source, target = (vocabulary_size,) * 2 if isinstance(vocabulary_size, int) else vocabulary_size
    if min(source, target) < 4:
        raise UsageError(f"vocabulary_size: {min(source, target)} leave no room for the four special entries")
    return build_model(config, source, target, languages=languages)
