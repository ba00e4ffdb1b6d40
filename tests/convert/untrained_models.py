"""Models with random values, saved as training saves them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from deepwire.checkpoint.store import save_model
from deepwire.convert import parity
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import BOS, PAD, Vocabularies
from deepwire.data.vocabulary_config import BpeConfig
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

LONGEST = 40


@pytest.fixture(autouse=True, scope="module")
def short_comparisons() -> Iterator[None]:
    """Translations that are compared end after 40 subwords, since those of random values end nowhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parity, "_MAX_TARGET", LONGEST)
        yield


def vocabularies_of(text: Mapping[str, Sequence[str]]) -> Vocabularies:
    """400 subwords of the first 300 lines of `de` and `en`."""
    lines = enumerate(zip(text["de"][:300], text["en"][:300], strict=True), 1)
    return Vocabularies.learn_from_blocks(
        BpeConfig(size=400), [[Pair(number, *both, 0) for number, both in lines]]
    )


def save_untrained(
    folder: Path,
    vocabularies: Vocabularies,
    settings: Mapping[str, object],
    metadata: Mapping[str, object],
    *,
    noise: float = 0.15,
    seed: int = 3,
    never: Collection[int] = (PAD, BOS),
    likely: Mapping[int, float] | None = None,
) -> Path:
    """Save a model whose values are all random, also those that begin at 0 or 1; the folder.

    Args:
        folder: Where.
        vocabularies: Of the model; each language of the metadata has a tag behind their subwords.
        settings: Those of `model`.
        metadata: Of the checkpoint.
        noise: Standard deviation of what is added to each value.
        seed: Of the values.
        never: Symbols that the model never writes, as training leaves them.
        likely: What is added to the biases of symbols.
    """
    names = metadata.get("languages", ())
    assert isinstance(names, list | tuple)
    sizes = vocabularies.source.size + len(names), vocabularies.target.size + len(names)
    torch.manual_seed(seed)
    own = len(names) if "languages" in settings else 0
    model = build_model(ModelConfig.model_validate(settings), *sizes, own)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
        if model.head.bias is not None:
            model.head.bias[..., list(never)] = -30
            for symbol, more in (likely or {}).items():
                model.head.bias[..., symbol] += more
    save_model(folder, model, vocabularies, dict(metadata))
    return folder


def proven(folder: Path, lines: int = 6) -> dict[str, Any]:
    """The record of an export that computes and translates the same there; it fails where it does not."""
    record: dict[str, Any] = json.loads((folder / "parity.json").read_text())
    found = record["compared"]
    assert found["largest_difference"] < 1e-4
    assert (found["lines"], found["equal"], found["beam_equal"]) == (lines, 1, 1)
    assert found["bleu"] is None or found["bleu"][0] == found["bleu"][1]
    return record
