"""A new run that begins with a pretrained encoder, in its own encoder and in its decoder.

As the OPUS-100 rows of Yang et al. 2022 (GTrans), after Ma et al. 2020 (XLM-T: Scaling up Multilingual
Machine Translation with Pretrained Cross-lingual Transformer Encoders).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from deepwire.checkpoint.importers.pretrained_encoder import (
    PretrainedEncoder,
    read_pretrained,
    weights_file,
)
from deepwire.checkpoint.model_files import digest
from deepwire.config.section import flatten
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import UsageError
from deepwire.model.config import ModelConfig
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.training.warm_start.transfer import RowMap, map_rows
from deepwire.training.warm_start.warm_start_config import DecoderLayers, PretrainedSection


@dataclass(frozen=True)
class PretrainedReport:
    """The parameters that a run took over from a pretrained encoder.

    Attributes:
        folder: Where it was read from.
        digest: Stands for its parameters.
        loaded: Names of the parameters that have its values.
        untrained: Names of the others.
        layers: For each stack that was filled the layers that it took, from 1.
        vocabulary: For each side the pieces whose vectors were taken, and those that are means of others'.
    """

    folder: str
    digest: str
    loaded: list[str]
    untrained: list[str]
    layers: dict[str, list[int]]
    vocabulary: dict[str, tuple[int, int]]

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The report for people."""
        taken = ", ".join(
            f"{side} layers from {', '.join(map(str, numbers))}" for side, numbers in self.layers.items()
        )
        lines = [f"started from {self.folder}: {len(self.loaded)} tensors taken over ({taken})"]
        if self.untrained:
            shown = ", ".join(self.untrained[:4]) + (", ..." if len(self.untrained) > 4 else "")
            lines.append(f"{len(self.untrained)} begin untrained: {shown}")
        return lines + [
            f"{side} vocabulary: {same} pieces have vectors there, {new} begin as means of others"
            for side, (same, new) in self.vocabulary.items()
        ]


@torch.no_grad()
def start_pretrained(
    config: PretrainedSection, model: TranslationModel, vocabularies: Vocabularies
) -> PretrainedReport:
    """Fill an untrained model from a pretrained encoder; what finds no value stays as it is.

    Norms of which each target language has its own take the value for all of them.

    Raises:
        ModelError: The encoder is missing, damaged or of an unknown kind.
        UsageError: Settings of the run differ from those of the encoder, each named with what it must be.
    """
    encoder = read_pretrained(config.encoder)
    sides: list[Side] = ["encoder"] if config.decoder == "none" else ["encoder", "decoder"]
    _require_settings(encoder, model, sides)
    layers = {side: _layers(encoder, model, side, config.decoder) for side in sides}
    values, maps = _tables(encoder, model, vocabularies)
    for side, numbers in layers.items():
        values |= encoder.values(side, numbers, inner=model.config.stack(side).inner_feed_forward)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    filled = {id(parameters[name]) for name in values}
    for name, value in values.items():
        if parameters[name].dim() > value.dim():  # of each language
            parameters[name].copy_(value.expand_as(parameters[name]))
        else:
            rows = min(parameters[name].size(0), value.size(0))
            parameters[name][:rows].copy_(value[:rows])
    names = [name for name, _ in model.named_parameters()]
    return PretrainedReport(
        str(encoder.folder),
        digest(weights_file(encoder.folder)),
        [name for name in names if id(parameters[name]) in filled],
        [name for name in names if id(parameters[name]) not in filled],
        {side: [number + 1 for number in numbers] for side, numbers in layers.items()},
        {side: (rows.taken, rows.new) for side, rows in maps.items()},
    )


def _layers(
    encoder: PretrainedEncoder, model: TranslationModel, side: Side, decoder: DecoderLayers
) -> list[int]:
    """For each layer of a stack the pretrained one, from 0."""
    wanted = model.config.stack(side).layers
    if wanted > encoder.layers:
        raise UsageError(
            f"training.pretrained: {encoder.folder} has {encoder.layers} layers, fewer than the {wanted} of "
            f"model.{side}",
            f"set model.{side}.layers to {encoder.layers} at most"
            + (", or training.pretrained.decoder to none" if side == "decoder" else ""),
        )
    if side == "encoder" or decoder == "bottom":
        # With a feed-forward in front of the cross-attention, a layer begins as two pretrained ones.
        two = model.config.stack(side).inner_feed_forward
        return [min(2 * number + 1, encoder.layers - 1) if two else number for number in range(wanted)]
    return [(number + 1) * encoder.layers // wanted - 1 for number in range(wanted)]


def _tables(
    encoder: PretrainedEncoder, model: TranslationModel, vocabularies: Vocabularies
) -> tuple[dict[str, Tensor], dict[str, RowMap]]:
    """The tables of words that are as wide as the encoder's, piece by piece."""
    words = encoder.words
    source = map_rows(encoder.vocabulary, vocabularies.source)
    same = vocabularies.source is vocabularies.target
    target = source if same else map_rows(encoder.vocabulary, vocabularies.target)
    places = {"source_embedding": source, "target_embedding": target, "head": target}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    values = {}
    for place, rows in places.items():
        name = f"{place}.table.weight"
        if parameters[name].size(1) == words.size(1):
            values[name] = rows.rows(words)
            values[name][model.pad_id] = 0
    return values, {"joint": source} if same else {"source": source, "target": target}


def _require_settings(encoder: PretrainedEncoder, model: TranslationModel, sides: list[Side]) -> None:
    """Refuse a model that computes otherwise than the encoder where it takes its parameters."""
    wrong: dict[Side, list[str]] = {}
    for side in sides:
        stored = _in_force(model.config, side)
        wrong[side] = [
            f"{key}={_written(value)}, not {_written(stored.get(key))}"
            for key, value in encoder.settings.items()
            if stored.get(key) != value
        ]
    rows = encoder.positions.size(0) - int(str(encoder.settings["positions.first"]))
    if model.config.max_length > rows:
        wrong["encoder"].append(f"max_length at most {rows}, not {model.config.max_length}")
    both = [text for text in wrong["encoder"] if all(text in texts for texts in wrong.values())]
    places = {"model": both} | {
        f"model.{side}": [text for text in texts if text not in both] for side, texts in wrong.items()
    }
    if any(places.values()):
        listed = "; ".join(f"{place}: {', '.join(texts)}" for place, texts in places.items() if texts)
        raise UsageError(
            f"training.pretrained: {encoder.folder} needs other settings in {listed}",
            "set them so in the run file",
        )


def _in_force(config: ModelConfig, side: Side) -> Mapping[str, object]:
    """The settings of one stack by dotted key, with those of the whole model where it has none of its own."""
    stack = config.stack(side)
    scale = config.embeddings.scale if stack.scale_embedding is None else stack.scale_embedding
    dim, heads, inner = config.size(side)
    return flatten(
        {
            **config.model_dump(mode="json"),
            **stack.model_dump(mode="json"),
            "positions": (stack.positions or config.positions).model_dump(mode="json"),
            "embeddings": {"norm": config.embeddings.norm, "scale": scale},
            "d_model": dim,
            "heads": heads,
            # A stack's own setting of this name only says whether it has such sub-layers.
            "feed_forward": inner if stack.feed_forward else None,
        }
    )


def _written(value: object) -> str:
    """As in a run file."""
    return json.dumps(value).strip('"')
