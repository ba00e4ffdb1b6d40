"""A foreign checkpoint as a model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import Tensor

from deepwire.checkpoint.importers.foreign_checkpoint import ForeignCheckpoint
from deepwire.checkpoint.importers.importer import HEAD, SOURCE, Destination, Destinations, Importer
from deepwire.checkpoint.importers.parameter_filler import fill_parameters
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.encoder_decoder import TranslationModel
from deepwire.model.meta_init import meta_init

_MOST_COPIES = 3
"""One table of a checkpoint can become both embeddings and the output projection."""


def convert(
    importer: Importer, foreign: ForeignCheckpoint, config: ModelConfig, vocabularies: Vocabularies
) -> TranslationModel:
    """Build the model of `config` and fill_parameters it from the checkpoint, in the order of our ids.

    Raises:
        ModelError: The vocabulary has another size, or names and shapes do not fit the architecture.
        UsageError: One embedding for vocabularies of different sizes.
    """
    tables = importer.embeddings(config, foreign)
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
        importer.final_config(config),
        vocabularies.source.size,
        vocabularies.target.size,
        languages=importer.languages(foreign),
    )
    with meta_init():
        _refuse_larger(build(), foreign)
    model = build()

    def values() -> Iterator[tuple[str, Tensor, Destinations | None]]:
        for parameter, (name, value) in tables.items():
            yield name, value, (Destination(parameter),)
        lookups = {name for names in importer.tables for name in names}
        for name, value in foreign.tensors.items():
            if name not in lookups and not importer.ignores(name):
                yield name, value, importer.destinations_of(name, model, foreign)

    fill_parameters(model, foreign.path, values())
    return model.eval()


def _refuse_larger(model: TranslationModel, foreign: ForeignCheckpoint) -> None:
    """Before memory is taken: a checkpoint cannot fill_parameters a model of many times its size."""
    wanted = sum(parameter.numel() for parameter in model.parameters())
    held = sum(tensor.numel() for tensor in foreign.tensors.values())
    if wanted > _MOST_COPIES * held:
        raise ModelError(
            f"{foreign.path}: holds {held:,} numbers, but the architecture has {wanted:,} parameters",
            "is it the architecture of this checkpoint? Settings: --run RUNFILE, or model.key=value",
        )
