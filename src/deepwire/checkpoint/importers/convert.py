"""A foreign checkpoint as a model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import Tensor

from deepwire.checkpoint.importers.archive import Foreign
from deepwire.checkpoint.importers.base import HEAD, SOURCE, Family, Place, Places
from deepwire.checkpoint.importers.filling import fill
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.encoder_decoder import TranslationModel
from deepwire.model.meta_init import meta_init

_MOST_COPIES = 3
"""One table of a checkpoint can become both embeddings and the output projection."""


def convert(
    family: Family, foreign: Foreign, config: ModelConfig, vocabularies: Vocabularies
) -> TranslationModel:
    """Build the model of `config` and fill it from the checkpoint, in the order of our ids.

    Raises:
        ModelError: The vocabulary has another size, or names and shapes do not fit the architecture.
        UsageError: One embedding for vocabularies of different sizes.
    """
    tables = family.embeddings(config, foreign)
    for parameter, size in ((SOURCE, vocabularies.source.size), (HEAD, vocabularies.target.size)):
        name, value = tables.get(parameter, ("", None))
        if value is not None and value.size(0) != size:
            raise ModelError(
                f"{foreign.path}: {name} has {value.size(0)} rows, but the vocabulary has {size} entries, "
                "the four special ones included",
                "is it the vocabulary of this model, and complete?",
            )
    build = partial(
        build_model,
        family.final_config(config),
        vocabularies.source.size,
        vocabularies.target.size,
        languages=family.languages(foreign),
    )
    with meta_init():
        _refuse_larger(build(), foreign)
    model = build()

    def values() -> Iterator[tuple[str, Tensor, Places | None]]:
        for parameter, (name, value) in tables.items():
            yield name, value, (Place(parameter),)
        lookups = {name for names in family.tables for name in names}
        for name, value in foreign.tensors.items():
            if name not in lookups and not family.ignores(name):
                yield name, value, family.places(name, model, foreign)

    fill(model, foreign.path, values())
    return model.eval()


def _refuse_larger(model: TranslationModel, foreign: Foreign) -> None:
    """Before memory is taken: a checkpoint cannot fill a model of many times its size."""
    wanted = sum(parameter.numel() for parameter in model.parameters())
    held = sum(tensor.numel() for tensor in foreign.tensors.values())
    if wanted > _MOST_COPIES * held:
        raise ModelError(
            f"{foreign.path}: holds {held:,} numbers, but the architecture has {wanted:,} parameters",
            "is it the architecture of this checkpoint? Settings: --run RUNFILE, or model.key=value",
        )
