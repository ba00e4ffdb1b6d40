"""Folders of Hugging Face's transformers: Marian (OPUS-MT), Pegasus, BART, mBART, M2M-100 (NLLB).

Their parameters are called as in fairseq, from which most of them come. So a folder is brought into the order
of our channels and ids, and read as a checkpoint of fairseq. No code of transformers is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from deepwire.checkpoint.importers.fairseq import FairseqImporter
from deepwire.checkpoint.importers.fairseq_architecture import fairseq_architecture
from deepwire.checkpoint.importers.foreign_checkpoint import ForeignCheckpoint, read_foreign_checkpoint
from deepwire.checkpoint.importers.huggingface_vocabulary import SymbolNumbers
from deepwire.checkpoint.importers.importer import (
    HEAD,
    SOURCE,
    TARGET,
    Architecture,
    Destination,
    Destinations,
)
from deepwire.config.yaml_tree import PlainValue
from deepwire.data.subwords.base import BOS
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError
from deepwire.io.regular_files import read_json
from deepwire.model.config import ModelConfig
from deepwire.model.stack_spec import SIDES
from deepwire.model.translation_model import TranslationModel

CONFIG, GENERATION = "config.json", "generation_config.json"
_KINDS = ("marian", "pegasus", "bart", "mbart", "m2m_100")
_SINES_FIRST = ("marian", "pegasus")
"""All sines stand before all cosines, with the frequencies of the paper."""
_LEARNED = ("bart", "mbart")
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
_BIAS = "output_bias"
_LAYER = {side: re.compile(rf"{side}\.layers\.(\d+)\.") for side in SIDES}
_IMPOSSIBLE = -1e4
"""Bias of the second of two equal rows, so that only one of them counts; finite in half precision."""
# What reads the stream along its columns, what writes it along its rows, and what lies on it.
_READS: tuple[str, ...] = tuple(
    f"{name}.weight" for name in ("q_proj", "k_proj", "v_proj", "fc1", "embed_tokens")
)
_READS += ("output_projection.weight",)
_WRITES = tuple(
    f"{name}.{leaf}"
    for name in ("out_proj", "fc2", "layer_norm", "layernorm_embedding")
    for leaf in ("weight", "bias")
)


class HuggingFaceImporter(FairseqImporter):
    """transformers; names and most settings are fairseq's."""

    name = "huggingface"

    def read(self, path: Path) -> ForeignCheckpoint:
        """A folder with `config.json`, as fairseq would have stored it."""
        return _Folder.open(path).checkpoint()

    def own_vocabularies(self, foreign: ForeignCheckpoint) -> Vocabularies | None:
        """The vocabularies of the tokenizer in the folder."""
        folder = _Folder.open(foreign.path.parent)
        return folder.symbols().vocabularies(folder.path, *folder.rows())

    def architecture(self, foreign: ForeignCheckpoint) -> Architecture:
        """As fairseq's, and what fairseq does not have."""
        told = fairseq_architecture(foreign)
        config = _record(foreign.settings["config"])
        known = {**told.known, "model.bias.output": _BIAS in foreign.tensors}
        if config["model_type"] in _SINES_FIRST:
            known["model.positions"] = "sinusoidal"
        known["model.embeddings.start"] = str(foreign.settings["start"])
        known["data.source_bos"] = bool(foreign.settings["source_bos"])
        assumed = {key: value for key, value in told.assumed.items() if not key.startswith("decoding.")}
        return replace(told, known=known, assumed=assumed | _search(_record(foreign.settings["generation"])))

    def ignores(self, name: str) -> bool:  # noqa: ARG002
        """Nothing is left that is no parameter."""
        return False

    def destinations_of(
        self, name: str, model: TranslationModel, foreign: ForeignCheckpoint
    ) -> Destinations | None:
        """As in fairseq; and the bias of the output."""
        if name == _BIAS:
            return (Destination("head.bias"),)
        return super().destinations_of(name, model, foreign)

    def final_config(self, config: ModelConfig) -> ModelConfig:
        """The start symbol is told by the folder."""
        return config

    def embeddings(self, config: ModelConfig, foreign: ForeignCheckpoint) -> dict[str, tuple[str, Tensor]]:
        """The three tables, whose rows have our numbers already."""
        names = {SOURCE: self.tables[0][0], TARGET: self.tables[1][0], HEAD: self.tables[2][0]}
        if names[TARGET] not in foreign.tensors:
            names[TARGET] = names[SOURCE]
        if names[HEAD] not in foreign.tensors and config.embeddings.tie in ("all", "output"):
            names[HEAD] = names[TARGET]
        return {
            parameter: (name, foreign.tensors[name])
            for parameter, name in names.items()
            if name in foreign.tensors
        }


@dataclass(frozen=True)
class _Folder:
    """A folder of transformers.

    Attributes:
        path: It.
        config, generation: Of the model, and of its search.
    """

    path: Path
    config: Mapping[str, object]
    generation: Mapping[str, object]

    @classmethod
    def open(cls, path: Path) -> _Folder:
        if not path.is_dir():
            raise ModelError(f"{path}: is no folder", f"name the folder with {CONFIG} and the weights")
        config = read_json(path / CONFIG)
        kind = config.get("model_type")
        if kind not in _KINDS:
            raise ModelError(
                f"{path / CONFIG}: a model of the type {kind!r}, which is not known here",
                f"known are {', '.join(_KINDS)}",
            )
        activation = config.get("activation_function")
        if activation not in _ACTIVATIONS:
            raise ModelError(f"{path / CONFIG}: activation_function {activation!r} is not known here")
        generation = read_json(path / GENERATION) if (path / GENERATION).exists() else {}
        return cls(path, config, {**config, **generation})

    def checkpoint(self) -> ForeignCheckpoint:
        """Tensors by fairseq's names, in its order of channels and ours of ids."""
        file, tensors = self._tensors()
        self._require_sizes(file, tensors)
        tensors = self._in_our_order(tensors)
        symbols, config = self.symbols(), self.config
        settings = {
            "config": config,
            "generation": {**self.generation, "unk": symbols.unk},
            "start": "eos" if symbols.start == symbols.eos else "bos",
            "source_bos": symbols.source_bos,
            "activation_fn": _ACTIVATIONS[str(config["activation_function"])],
            "no_scale_embedding": config.get("scale_embedding") is not True,
            **{
                name: config[name]
                for name in (
                    "encoder_attention_heads",
                    "decoder_attention_heads",
                    "dropout",
                    "attention_dropout",
                    "activation_dropout",
                )
                if name in config
            },
            **symbols.languages,
        }
        return ForeignCheckpoint(file, tensors, settings)

    def symbols(self) -> SymbolNumbers:
        """The numbers of the symbols."""
        return SymbolNumbers.of(self.path, {**self.config, **self.generation})

    def rows(self) -> tuple[int, int]:
        """Entries of source and target vocabulary."""
        source = self.config.get("vocab_size")
        shared = self.config.get("share_encoder_decoder_embeddings", True)
        target = source if shared else self.config.get("decoder_vocab_size") or source
        if not isinstance(source, int) or not isinstance(target, int):
            raise ModelError(f"{self.path / CONFIG}: vocab_size is no number")
        return source, target

    def _tensors(self) -> tuple[Path, dict[str, Tensor]]:
        """All parameters by fairseq's names."""
        files = sorted(self.path.glob("model*.safetensors")) or sorted(self.path.glob("pytorch_model*.bin"))
        if not files:
            raise ModelError(f"{self.path}: has no model.safetensors and no pytorch_model.bin")
        stored: dict[str, Tensor] = {}
        for file in files:
            stored |= read_foreign_checkpoint(file).tensors
        tensors = {name.removeprefix("model."): value for name, value in stored.items()}
        shared = tensors.pop("shared.weight", None)
        if shared is not None:
            tensors.setdefault("encoder.embed_tokens.weight", shared)
        if self.config["model_type"] not in _LEARNED:
            for side in ("encoder", "decoder"):
                tensors.pop(f"{side}.embed_positions.weight", None)
                tensors.pop(f"{side}.embed_positions.weights", None)
        head = tensors.pop("lm_head.weight", None)
        if head is not None and self.config.get("tie_word_embeddings") is False:
            tensors["decoder.output_projection.weight"] = head
        bias = tensors.pop("final_logits_bias", None)
        if bias is not None:
            tensors[_BIAS] = bias.flatten()
        return files[0], tensors

    def _require_sizes(self, file: Path, tensors: Mapping[str, Tensor]) -> None:
        """Check that the weights have the sizes that the settings name.

        Whatever is made later is as large as the tables of the vocabularies, which must be there.
        """
        stored: dict[str, int] = {}
        for side, rows in zip(SIDES, self.rows(), strict=True):
            table = tensors.get(f"{side}.embed_tokens.weight", tensors.get("encoder.embed_tokens.weight"))
            if table is None or table.size(0) != rows:
                has = "no table" if table is None else f"{table.size(0)} rows"
                raise ModelError(f"{file}: {side}.embed_tokens.weight: {has}, but {CONFIG} names {rows}")
        for side in SIDES:
            numbers = [int(match[1]) for match in map(_LAYER[side].match, tensors) if match]
            stored[f"{side}_layers"] = max(numbers, default=-1) + 1
            for key, name, axis in (
                ("d_model", "embed_tokens.weight", 1),
                ("d_model", "layers.0.self_attn.q_proj.weight", 1),
                (f"{side}_ffn_dim", "layers.0.fc1.weight", 0),
            ):
                value = tensors.get(f"{side}.{name}")
                if value is not None and value.dim() == 2:
                    stored[key] = value.size(axis)
        for key, found in stored.items():
            said = self.config.get(key)
            if said is not None and said != found:
                raise ModelError(
                    f"{self.path / CONFIG}: {key} is {said!r}, but {file.name} has {found}",
                    f"see that {CONFIG} and the weights are of one model",
                )

    def _in_our_order(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        symbols = self.symbols()
        sizes = dict(zip(("encoder", "decoder"), self.rows(), strict=True))
        target = symbols.rows(sizes["decoder"])
        bias = tensors.pop(_BIAS, torch.zeros(sizes["decoder"])).float()
        if bias.numel() != sizes["decoder"]:
            raise ModelError(f"{self.path}: final_logits_bias has {bias.numel()} numbers for the vocabulary")
        bias = bias[target]
        if symbols.repeated:
            bias[BOS] = _IMPOSSIBLE
        ordered = {}
        for name, value in tensors.items():
            side = name.partition(".")[0]
            if name.endswith(("embed_tokens.weight", "output_projection.weight")):
                if value.size(0) != sizes[side]:  # of the head
                    raise ModelError(f"{self.path}: {name} has {value.size(0)} rows, not {sizes[side]}")
                value = value[symbols.rows(sizes[side])]
            ordered[name] = self._channels(name, value)
        if bool(bias.any()):
            ordered[_BIAS] = bias
        return ordered

    def _channels(self, name: str, value: Tensor) -> Tensor:
        """Sines and cosines in turn, through the whole residual stream."""
        if self.config["model_type"] not in _SINES_FIRST:
            return value
        dim = self.config.get("d_model")
        if not isinstance(dim, int):
            raise ModelError(f"{self.path / CONFIG}: d_model is no number")
        order = torch.arange(dim).view(2, -1).t().flatten()
        if name.endswith(_WRITES) and value.size(0) == dim:
            return value[order]
        return value[:, order] if name.endswith(_READS) and value.size(-1) == dim else value


def _search(generation: Mapping[str, object]) -> dict[str, PlainValue]:
    """How the folder would search."""
    beam, longest = generation.get("num_beams", 1), generation.get("max_length", 512)
    never = [
        *_list(generation.get("suppress_tokens")),
        *(word[0] for word in _list(generation.get("bad_words_ids")) if isinstance(word, list)),
    ]
    penalty, ngram = generation.get("length_penalty", 1.0), generation.get("no_repeat_ngram_size")
    shortest, counted = generation.get("min_new_tokens"), generation.get("min_length")
    if not isinstance(shortest, int):
        shortest = counted - 1 if isinstance(counted, int) and counted > 1 else 0
    return {
        "decoding.beam": beam if isinstance(beam, int) else 1,
        "decoding.length_penalty": float(penalty) if isinstance(penalty, int | float) else 1.0,
        "decoding.length_penalty_form": "average",
        "decoding.stop": "first" if generation.get("early_stopping") is True else "optimal",
        "decoding.max_length_ratio": 0.0,
        "decoding.max_length_extra": longest - 2 if isinstance(longest, int) and longest > 2 else 510,
        "decoding.min_length": shortest,
        "decoding.no_repeat_ngram": ngram if isinstance(ngram, int) else 0,
        "decoding.unknown_penalty": None if generation.get("unk") in never else 0.0,
    }


def _record(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(type(value).__name__)
    return value


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
