"""Models with random values, saved as training saves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from deepwire.checkpoint.store import save_model
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import BOS, PAD, Vocabularies
from deepwire.data.vocabulary_config import BpeConfig
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig


def vocabularies_of(text: Mapping[str, Sequence[str]]) -> Vocabularies:
    """400 subwords of the first 300 lines of `de` and `en`."""
    lines = enumerate(zip(text["de"][:300], text["en"][:300], strict=True), 1)
    return Vocabularies.learn(BpeConfig(size=400), [Pair(number, *both, 0) for number, both in lines])


def save_untrained(
    folder: Path,
    vocabularies: Vocabularies,
    settings: Mapping[str, object],
    metadata: dict[str, object],
    noise: float = 0.15,
) -> Path:
    """Save a model whose values are all random, also those that begin at 0 or 1; the folder."""
    torch.manual_seed(3)
    sizes = vocabularies.source.size, vocabularies.target.size
    model = build_model(ModelConfig.model_validate(settings), *sizes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
        assert model.head.bias is not None
        model.head.bias[[PAD, BOS]] = -30  # as training leaves them
    save_model(folder, model, vocabularies, metadata)
    return folder
