"""From the languages of one model to those of another: what each language has of its own moves by its name.

A language that is new begins as the mean of the others. Where the other model has one value for all languages
(a plain norm, a bias of the output), every language begins with it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from deepwire.data.languages import Languages
from deepwire.model.build import build_model
from deepwire.model.encoder_decoder import TranslationModel
from deepwire.model.meta_init import meta_init


def own_parameters(model: TranslationModel) -> frozenset[str]:
    """The names, all that they have, of the parameters of which each target language has its own."""
    if not model.languages:
        return frozenset()
    sizes = (model.source_vocabulary, model.target_vocabulary)
    with meta_init():
        larger = build_model(model.config, *sizes, languages=model.languages + 1)
    shapes = {name: parameter.shape for name, parameter in larger.named_parameters(remove_duplicate=False)}
    own = model.named_parameters(remove_duplicate=False)
    return frozenset(name for name, parameter in own if parameter.shape != shapes[name])


def by_language(
    values: Mapping[str, Tensor],
    old: TranslationModel,
    new: TranslationModel,
    before: Languages | None,
    after: Languages | None,
) -> dict[str, Tensor]:
    """The parameters of one model with those of languages as another model has them, `[L_new, ...]`.

    Args:
        values: Those of the old model, by all names, with the rows of the new vocabulary.
        old, new: The models.
        before, after: Their languages.
    """
    moved, there = dict(values), own_parameters(old)
    shapes = {name: parameter.shape for name, parameter in new.named_parameters(remove_duplicate=False)}
    places = {} if before is None else {language: place for place, language in enumerate(before.names)}
    wanted = () if after is None else after.names
    for name in own_parameters(new) & values.keys():
        value = values[name]
        if name in there:
            moved[name] = torch.stack(
                [value[places[language]] if language in places else value.mean(0) for language in wanted]
            )
        elif value.shape == shapes[name][1:]:
            moved[name] = value.expand(shapes[name])
    return moved
