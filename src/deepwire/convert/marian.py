"""Marian: a C++ program that trains and translates, whose models also run in browsers (Bergamot, Firefox).

A folder holds `model.npz`, the same as `model.bin` (which is mapped into memory, and which browsers read),
`decoder.yml` for `marian-decoder -c`, and the vocabularies: `.spm` of SentencePiece, which Marian reads text
with, or `.yml` of words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.export_format import ExportedModel, ExportFormat, require_distinct
from deepwire.convert.marian_arrays import arrays_of, settings_of
from deepwire.convert.marian_files import word_list, write_bin, write_npz, yaml_text
from deepwire.convert.marian_reading import MarianModel
from deepwire.convert.searched_model import HostOf, SearchedModel, host_settings
from deepwire.data.subwords.sentencepiece import SentencePieceVocabulary
from deepwire.data.vocabulary import BOS, PAD, Vocabularies, Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_loading import stored_config
from deepwire.errors import ModelError
from deepwire.model.portability import IN_MARIAN, not_in_marian

NPZ, BIN, OPTIONS, VOCABULARY = "model.npz", "model.bin", "decoder.yml", "vocabulary"
_EPSILON = 1e-6


class Marian(ExportFormat):
    """Marian's own format."""

    name = "marian"
    quantizations = ("float32",)
    computes_the_same = True
    never = (PAD, BOS)

    def require(self, model: LoadedModel) -> None:
        """See the base class."""
        if model.languages:
            raise ModelError(
                f"{model.folder}: a model of several languages, whose tags Marian does not know",
                "models of one direction can be exported",
            )
        if (setting := not_in_marian(model.model.config)) is not None:
            raise ModelError(f"Marian does not compute model.{setting}", IN_MARIAN)
        if model.metadata.get("source_bos") is True:
            raise ModelError(f"{model.folder}: its sources begin with BOS, which Marian does not write")
        require_distinct(model, "Marian")

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """Differences there."""
        config, notes = stored_config(model), []
        if config.length_penalty and config.length_penalty_form != "average":
            power = f"^{config.length_penalty:g}"
            notes.append(f"Marian divides by length{power}, and not by ((5 + length) / 6){power}")
        if config.beam > 1:
            notes.append(
                "Marian's beam gets narrower with every hypothesis that ends; deepwire's is filled up"
            )
        if model.model.config.norm_eps != _EPSILON:
            notes.append(
                f"norms have an epsilon of {_EPSILON:g} there, and of {model.model.config.norm_eps:g} here"
            )
        if not _reads_text(model.vocabularies):
            notes.append("Marian is given subwords, with spaces between them: its vocabulary is of words")
        return tuple(notes)

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """See the base class."""
        arrays, settings = arrays_of(model.model), settings_of(model.model)
        write_npz(arrays, settings, folder / NPZ)
        write_bin(arrays, settings, folder / BIN)
        model.vocabularies.save(folder / VOCABULARY)
        joint = model.vocabularies.source is model.vocabularies.target
        sides = model.vocabularies.sides.items()
        names = [_write_words(words, folder, "vocab" if joint else side) for side, words in sides]
        (folder / OPTIONS).write_text(yaml_text(_search(stored_config(model), names)), encoding="utf-8")

    def read(self, folder: Path) -> ExportedModel:
        """The equations of Marian, computed with numpy: Marian itself comes as no Python package."""
        model, options = MarianModel(folder / NPZ), host_settings(DecodingConfig())
        manifest = {
            "decoding": options,
            "source_bos": False,
            "languages": {},
            "target_pieces": model.arrays["decoder_ff_logit_out_b"].size,
        }
        return SearchedModel(folder / VOCABULARY, partial(HostOf, model, manifest))

    def version(self) -> str:
        """See the base class."""
        return "Marian 1.10, computed with numpy"


def _reads_text(vocabularies: Vocabularies) -> bool:
    return isinstance(vocabularies.source, SentencePieceVocabulary)


def _write_words(vocabulary: Vocabulary, folder: Path, name: str) -> str:
    """Write one vocabulary as Marian reads it, and say its file."""
    if isinstance(vocabulary, SentencePieceVocabulary):
        (folder / f"{name}.spm").write_bytes(vocabulary.model)
        return f"{name}.spm"
    text = word_list(vocabulary.pieces(range(vocabulary.size)))
    (folder / f"{name}.yml").write_text(text, encoding="utf-8")
    return f"{name}.yml"


def _search(config: DecodingConfig, vocabularies: Sequence[str]) -> Mapping[str, object]:
    """The options of marian-decoder that are nearest to our search."""
    return {
        "relative-paths": True,
        "models": [NPZ],
        "vocabs": list(vocabularies),
        "beam-size": config.beam,
        "normalize": config.length_penalty,
        "word-penalty": 0,
        "mini-batch": 32,
        "maxi-batch": 100,
        "maxi-batch-sort": "src",
        "max-length": 1000,
        "max-length-crop": True,
    }
