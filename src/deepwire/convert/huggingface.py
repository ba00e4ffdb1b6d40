"""Hugging Face's transformers: plain Transformers as Marian, Pegasus, BART, mBART or M2M-100 models.

A folder holds `model.safetensors`, `config.json`, `generation_config.json` and the files of a
MarianTokenizer. `AutoModelForSeq2SeqLM` and `AutoTokenizer` read it, without deepwire.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deepwire.checkpoint.model_files import write_tensors
from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.export_format import ExportedModel, ExportFormat
from deepwire.convert.plain import plain_parameters, sides_of, swapped
from deepwire.convert.plain_models import (
    LEARNED,
    NORM_EPS,
    SINES_FIRST,
    SWAPPED,
    HuggingFaceClass,
    huggingface_class,
)
from deepwire.data.languages import Direction, Languages
from deepwire.data.subwords.sentencepiece import PieceTableVocabulary, SentencePieceVocabulary
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK
from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.model_loading import stored_config
from deepwire.errors import ModelError
from deepwire.io.atomic import write_json
from deepwire.model.embedding import LearnedPositions
from deepwire.model.stack_spec import SIDES
from deepwire.model.translation_model import TranslationModel

_ARCHITECTURES = {
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "m2m_100": "M2M100ForConditionalGeneration",
}
# All five have the same names of parameters.
_PARTS = {
    **{f"self.{name}": f"self_attn.{name}_proj" for name in "qkv"},
    **{f"cross.{name}": f"encoder_attn.{name}_proj" for name in "qkv"},
    "self.o": "self_attn.out_proj",
    "cross.o": "encoder_attn.out_proj",
    "feed.in": "fc1",
    "feed.out": "fc2",
    "self.norm": "self_attn_layer_norm",
    "cross.norm": "encoder_attn_layer_norm",
    "feed.norm": "final_layer_norm",
    "embedding.norm": "layernorm_embedding",
    "final.norm": "layer_norm",
}
_WRITES_STREAM = ("o", "out", "norm")
_LONGEST = 1024
"""Positions where they are not the rows of a learned table."""
_UNUSED_ROWS = 2
"""Rows in front of the stored positions of BART and mBART."""
_LONGEST_OUTPUT = 512
_BATCH = 32


class HuggingFace(ExportFormat):
    """Classes of transformers that compute plain Transformers."""

    name = "huggingface"
    packages, extra = ("transformers",), "hf"
    quantizations = ("float32",)
    computes_the_same = True

    def require(self, model: LoadedModel) -> None:
        """Refuse what no class computes, and vocabularies that a MarianTokenizer does not have."""
        super().require(model)
        huggingface_class(model.model.config)
        if model.metadata.get("source_bos") is True:
            raise ModelError(
                f"{model.folder}: its sources begin with BOS, which a MarianTokenizer does not write",
                "--format huggingface-code keeps it",
            )
        if not isinstance(model.vocabularies.source, SentencePieceVocabulary | PieceTableVocabulary):
            raise ModelError(
                f"{model.folder}: a MarianTokenizer segments with SentencePiece, and the vocabulary is of "
                f"the type {model.vocabularies.type}",
                "--format huggingface-code keeps it",
            )

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """Differences of the search and of norms, and how a language is chosen."""
        config, notes = stored_config(model), []
        if config.length_penalty and config.length_penalty_form != "average":
            notes.append("the length penalty has the form average there: use decoding.length_penalty_form")
        if config.sampling is not None:
            notes.append("decoding.sampling is left out: generation_config.json asks for a search")
        if (eps := model.model.config.norm_eps) != NORM_EPS:
            notes.append(f"norms have an epsilon of {NORM_EPS:g} there, and of {eps:g} here")
        languages = Languages.from_metadata(model.metadata)
        if languages is not None and languages.tags_target and len(languages.targets) > 1:
            notes.append("give generate(decoder_start_token_id=...) the number of a tag such as >>de<<")
        return tuple(notes)

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """Write parameters, settings and tokenizer."""
        kind, languages = huggingface_class(model.model.config), Languages.from_metadata(model.metadata)
        pad, bos = (BOS, PAD) if kind in SWAPPED else (PAD, BOS)
        numbers, pieces = {"pad": pad, "bos": bos, "eos": EOS, "unk": UNK}, model.vocabularies.target.size
        start = numbers[model.model.config.embeddings.start]
        config = _config(model.model, kind, numbers) | {"decoder_start_token_id": start}
        generation = generation_settings(stored_config(model), numbers, _longest(model.model, kind))
        if languages is not None:
            config["translation"] = languages.to_metadata()
            if languages.tags_target and len(languages.targets) == 1:
                start = pieces + languages.target(languages.targets[0])
            generation["suppress_tokens"] = [*never_written(numbers), *range(pieces, pieces + languages.tags)]
        write_tensors(folder / "model.safetensors", tensors_of(model.model, kind), {"format": "pt"})
        write_json(folder / "config.json", config)
        write_json(folder / "generation_config.json", generation | {"decoder_start_token_id": start})
        _write_tokenizer(model, folder, kind, languages)

    def read(self, folder: Path) -> ExportedModel:
        """The folder as transformers reads it."""
        return _Read(folder)


def tensors_of(model: TranslationModel, kind: HuggingFaceClass) -> dict[str, Tensor]:
    """Copies of the parameters by their names there, float32, each once.

    Marian and Pegasus make their sinusoids themselves, all sines before all cosines. Where ours stand in
    turn, the channels of the residual stream are put into their order: columns of embeddings and of every
    matrix that reads the stream, rows of every matrix that writes it, and the norms on it. That changes
    nothing that is computed.
    """
    order = torch.arange(model.config.d_model)
    if kind in SINES_FIRST:
        order = torch.cat((order[0::2], order[1::2]))
    tensors: dict[str, Tensor] = {}
    for (side, layer, part, leaf), value in plain_parameters(model).items():
        above = "" if layer < 0 else f"layers.{layer}."
        if part.partition(".")[2] in _WRITES_STREAM:
            value = value[order]
        elif leaf == "weight":
            value = value[:, order]
        tensors[f"model.{side}.{above}{_PARTS[part]}.{leaf}"] = value
    for name, table in _tables(model, kind).items():
        tensors[name] = (swapped(table) if kind in SWAPPED else table)[:, order]
    if kind in LEARNED:
        for side, (_, embedding) in sides_of(model).items():
            vectors = embedding.vectors(0, _longest(model, kind))
            assert vectors is not None  # which the class has
            unused = vectors.new_zeros(_UNUSED_ROWS, vectors.size(1))
            tensors[f"model.{side}.embed_positions.weight"] = torch.cat((unused, vectors))
    if kind not in SWAPPED:
        bias = torch.zeros(model.target_vocabulary) if model.head.bias is None else model.head.bias
        tensors["final_logits_bias"] = bias.unsqueeze(0)
    return {
        name: value.detach().to("cpu", torch.float32).contiguous().clone() for name, value in tensors.items()
    }


def _longest(model: TranslationModel, kind: HuggingFaceClass) -> int:
    sides = [embedding.positions for _, embedding in sides_of(model).values()]
    rows = [each.table.size(0) - each.first for each in sides if isinstance(each, LearnedPositions)]
    return min(rows) if rows and kind in LEARNED else _LONGEST


def _tables(model: TranslationModel, kind: HuggingFaceClass) -> dict[str, Tensor]:
    """Embeddings and output projection, each matrix once where it can be."""
    tie = model.config.embeddings.tie
    source, target = model.source_embedding.table.weight, model.target_embedding.table.weight
    tables: dict[str, Tensor] = {"model.shared.weight": source}
    if tie != "all":
        # Where not all are tied, newer versions of transformers tie none, and older ones both embeddings.
        tables |= {"model.encoder.embed_tokens.weight": source, "model.decoder.embed_tokens.weight": target}
    if tie not in ("all", "output"):
        tables["lm_head.weight"] = model.head.table.weight
    if kind == "marian" and tie != "all":
        del tables["model.shared.weight"]
    return tables


def never_written(numbers: Mapping[str, int]) -> list[int]:
    """The symbols that a translation never holds."""
    return sorted(numbers[name] for name in ("pad", "bos", "unk"))


def generation_settings(
    config: DecodingConfig, numbers: Mapping[str, int], longest: int
) -> dict[str, object]:
    """The nearest settings of transformers' `generate`; lengths count the start symbol."""
    search: dict[str, object] = {f"{name}_token_id": numbers[name] for name in ("pad", "bos", "eos")}
    search["num_beams"] = config.beam
    if config.beam > 1:
        search["length_penalty"] = config.length_penalty
        search["early_stopping"] = True if config.stop == "first" else "never"
    if config.no_repeat_ngram:
        search["no_repeat_ngram_size"] = config.no_repeat_ngram
    return {
        **search,
        "max_length": min(longest, _LONGEST_OUTPUT),
        "min_new_tokens": config.min_length,
        # Behind the softmax, so that probabilities stay as they are.
        "suppress_tokens": never_written(numbers),
    }


def _config(model: TranslationModel, kind: HuggingFaceClass, numbers: Mapping[str, int]) -> dict[str, object]:
    ours = model.config
    tie, dropout = ours.embeddings.tie, ours.dropout
    config: dict[str, object] = {
        "model_type": kind,
        "architectures": [_ARCHITECTURES[kind]],
        "is_encoder_decoder": True,
        "d_model": ours.d_model,
        "vocab_size": model.source_vocabulary,
        "activation_function": ours.activation,
        "scale_embedding": model.source_embedding.scale != 1,
        "tie_word_embeddings": tie in ("all", "output"),
        "max_position_embeddings": _longest(model, kind),
        "dropout": dropout.sublayer,
        "attention_dropout": dropout.attention,
        "activation_dropout": dropout.activation,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "forced_eos_token_id": None,
        "dtype": "float32",
        **{f"{name}_token_id": numbers[name] for name in ("pad", "bos", "eos")},
    }
    for side in SIDES:
        _, heads, inner = ours.size(side)
        config[f"{side}_layers"] = ours.stack(side).layers
        config[f"{side}_attention_heads"] = heads
        config[f"{side}_ffn_dim"] = inner
    if kind == "marian":
        config["share_encoder_decoder_embeddings"] = tie == "all"
        config["decoder_vocab_size"] = model.target_vocabulary
    return config


def _write_tokenizer(
    model: LoadedModel, folder: Path, kind: HuggingFaceClass, languages: Languages | None
) -> None:
    """The files of a MarianTokenizer; tags of languages are written `>>de<<` there."""
    swap = {PAD: BOS, BOS: PAD} if kind in SWAPPED else {}
    joint = model.vocabularies.source is model.vocabularies.target
    tags = [f">>{name}<<" for name in languages.names] if languages is not None and languages.tags else []
    for side, vocabulary in model.vocabularies.sides.items():
        assert isinstance(vocabulary, SentencePieceVocabulary | PieceTableVocabulary)
        (folder / f"{side}.spm").write_bytes(vocabulary.model)
        pieces = vocabulary.pieces(range(vocabulary.size))
        numbered = {piece: swap.get(number, number) for number, piece in enumerate(pieces)}
        numbered |= {tag: vocabulary.size + place for place, tag in enumerate(tags)}
        if side == "source" or not joint:
            write_json(folder / ("vocab.json" if side == "source" else "target_vocab.json"), numbered)
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": str(model.metadata.get("source", "")) or None,
        "target_lang": str(model.metadata.get("target", "")) or None,
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "separate_vocabs": not joint,
        "model_max_length": _longest(model.model, kind),
        # Text that says </s> is text.
        "split_special_tokens": True,
        "additional_special_tokens": tags,
    }
    write_json(folder / "tokenizer_config.json", settings)


class _Read(ExportedModel):
    """A model of transformers, searched by its own `generate`."""

    def __init__(self, folder: Path) -> None:
        with quiet():
            from transformers import AutoModelForSeq2SeqLM

            self._model = AutoModelForSeq2SeqLM.from_pretrained(str(folder), local_files_only=True).eval()
        self._languages: Any = getattr(self._model.config, "translation", None)
        self._pad, self._end = self._model.config.pad_token_id, self._model.config.eos_token_id
        self._source = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        path = folder / "target_vocab.json"
        self._target = json.loads(path.read_text(encoding="utf-8")) if path.exists() else self._source
        self._pieces = {number: piece for piece, number in self._target.items()}

    def searchable(self, config: DecodingConfig) -> DecodingConfig:
        """Its length penalty has one form."""
        return with_settings(config, {"length_penalty_form": "average"})

    def search(
        self, sources: Sequence[Sequence[str]], config: DecodingConfig, language: str = ""
    ) -> list[list[str]]:
        numbers = {name: getattr(self._model.config, f"{name}_token_id") for name in ("pad", "bos", "eos")}
        wanted = generation_settings(config, {**numbers, "unk": UNK}, 1)
        # Those of the folder, and of each sentence.
        del wanted["suppress_tokens"], wanted["max_length"]
        wanted["no_repeat_ngram_size"] = config.no_repeat_ngram
        limit, translations = config.max_length_extra, list[list[str]]()
        for start in range(0, len(sources), _BATCH):
            ids = self._padded([self._read(source, language) for source in sources[start : start + _BATCH]])
            with quiet():
                found = self._model.generate(
                    ids,
                    attention_mask=(ids != self._pad).long(),
                    decoder_start_token_id=self._first(language),
                    max_length=limit + 2,  # and the start and the end
                    logits_processor=[partial(_only_end, self._end, limit)],
                    **{"early_stopping": False, **wanted},
                )
            for _, *text in found.tolist():
                ended = text[: text.index(self._end)] if self._end in text else text
                translations.append([self._pieces[number] for number in ended])
        return translations

    @torch.inference_mode()
    def score(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], language: str = ""
    ) -> list[list[float]]:
        scores: list[list[float]] = []
        first = self._first(language)
        for start in range(0, len(sources), _BATCH):
            batch = slice(start, start + _BATCH)
            source = self._padded([self._read(each, language) for each in sources[batch]])
            ids = [[*(self._target[piece] for piece in each), self._end] for each in targets[batch]]
            target = self._padded([[first, *each[:-1]] for each in ids])
            # No mask of the target: the padding behind it is never read.
            mask = (source != self._pad).long()
            logits = self._model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
            for row, each in zip(logits.float().log_softmax(-1), ids, strict=True):
                scores.append(row[torch.arange(len(each)), torch.tensor(each)].tolist())
        return scores

    def _read(self, source: Sequence[str], language: str) -> list[int]:
        tag = [self._tag(language)] if self._has_tags("source") else []
        return [*tag, *(self._source[piece] for piece in source), self._end]

    def _has_tags(self, side: str) -> bool:
        return self._languages is not None and self._languages["tag"] in (side, "both")

    def _tag(self, language: str) -> int:
        known = {Direction.parse(direction).target for direction in self._languages["directions"]}
        return int(self._target[f">>{language or known.pop()}<<"])

    def _first(self, language: str) -> int:
        if self._has_tags("target"):
            return self._tag(language)
        return int(self._model.generation_config.decoder_start_token_id)

    def _padded(self, rows: Sequence[Sequence[int]]) -> Tensor:
        longest = max(map(len, rows))
        return torch.tensor([[*row, *[self._pad] * (longest - len(row))] for row in rows])


def _only_end(end: int, limit: int, ids: Tensor, scores: Tensor) -> Tensor:
    """Nothing but EOS after so many subwords, as in our search; `generate` would cut the sentence there."""
    if ids.size(1) <= limit:
        return scores
    only = torch.full_like(scores, -torch.inf)
    only[:, end] = scores[:, end]
    return only


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' notices on the way, which are none for who exports a model."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
