"""The `data.vocabulary` part of a run file: how text is cut into subwords."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from deepwire.config.choice import by_name_or
from deepwire.config.counts import Count
from deepwire.config.section import MAY_CHANGE, Removed, Section

SMALLEST = 8
LARGEST = 2**31 - 1


class SentencePieceConfig(Section):
    """Settings that the two kinds of SentencePiece vocabulary share."""

    size: Count = Field(
        default=8000, ge=SMALLEST, le=LARGEST, description="number of entries, special ones included"
    )
    joint: bool = Field(default=True, description="one vocabulary learned from both sides; else one for each")
    character_coverage: float = Field(
        default=0.9995, ge=0.98, le=1, description="share of the characters that get an entry of their own"
    )
    byte_fallback: bool = Field(
        default=True,
        description="write other characters as UTF-8 bytes, 256 of the entries; without it they become UNK",
    )
    normalization: Literal["identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"] = Field(
        default="identity", description="Unicode normalization of both sides; identity keeps text as it is"
    )
    sampling: float = Field(default=0.0, ge=0, description="random segmentation during training; 0 is none")
    max_training_sentences: Count = Field(
        default=1_000_000, ge=1, description="learn from this many lines of each side, chosen at random"
    )
    balance_temperature: float = Field(
        default=1.0,
        ge=1,
        description="with data.directions: share of each language in the text to learn from, "
        "(its share of all lines) ^ (1 / temperature)",
    )


class BpeConfig(SentencePieceConfig):
    """Byte-pair encoding learned by SentencePiece; `sampling` is the probability of BPE-dropout."""

    type: Literal["bpe"] = "bpe"
    sampling: float = Field(
        default=0.0, ge=0, lt=1, description="probability of BPE-dropout during training; 0 is none"
    )


class UnigramConfig(SentencePieceConfig):
    """Unigram language model learned by SentencePiece; `sampling` is the smoothing alpha."""

    type: Literal["unigram"] = "unigram"
    sampling: float = Field(
        default=0.0,
        ge=0,
        description="alpha of subword regularization during training, such as 0.1 or 0.5; 0 is none",
    )


class SubwordNmtConfig(Section):
    """BPE codes learned by subword-nmt for tokenised text; the dictionary is what the training text needs."""

    removed: ClassVar[dict[str, Removed]] = {
        "vocabulary": Removed((None,), "set min_count: the pieces are counted in the training text"),
        "target_vocabulary": Removed((None,), "set min_count: the pieces are counted in the training text"),
        "threshold": Removed((1,), "set min_count"),
        "rare": Removed(("split", "unknown"), "pieces below min_count become UNK"),
    }

    type: Literal["subword_nmt"] = "subword_nmt"
    codes: Path = Field(json_schema_extra=MAY_CHANGE, description="file of merges, format 0.1 or 0.2")
    target_codes: Path | None = Field(
        json_schema_extra=MAY_CHANGE,
        default=None,
        description="codes of the target side when they were learned apart",
    )
    joint: bool = Field(default=True, description="one dictionary for both sides")
    min_count: Count = Field(
        default=1, ge=1, description="pieces that the training text has less often become UNK"
    )
    sampling: float = Field(
        default=0.0, ge=0, lt=1, description="probability of BPE-dropout during training; 0 is none"
    )

    @model_validator(mode="after")
    def _one_dictionary_needs_one_code(self) -> Self:
        if self.joint and self.target_codes is not None:
            raise ValueError("target_codes need joint: false; a joint dictionary has one file of codes")
        return self


class WordsConfig(Section):
    """Text that is segmented already: every word between single spaces is an entry."""

    type: Literal["words"] = "words"
    joint: bool = Field(default=True, description="one dictionary for both sides")
    min_count: Count = Field(default=1, ge=1, description="rarer words become UNK")
    max_size: Count | None = Field(
        default=None, ge=SMALLEST, le=LARGEST, description="keep the most frequent, special entries included"
    )
    joiner: Literal["@@", "none"] = Field(
        default="none", description="@@ joins the pieces of BPE again when text is put out"
    )
    sampling: Literal[0] = Field(default=0, description="segmented text cannot be segmented at random")


class ExistingConfig(Section):
    """A vocabulary that is there already, such as that of the model that fine-tuning begins with."""

    type: Literal["existing"] = "existing"
    folder: Path = Field(
        json_schema_extra=MAY_CHANGE, description="a run, a model directory, or a folder of a vocabulary"
    )
    joint: bool = Field(
        default=True, description="whether it is one for both sides, as it must turn out to be"
    )
    sampling: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="random segmentation during training, as its type knows it; 0 is none",
    )


VocabularyConfig = Annotated[
    BpeConfig | UnigramConfig | SubwordNmtConfig | WordsConfig | ExistingConfig,
    Field(discriminator="type"),
    by_name_or("bpe"),
]
"""A vocabulary section: a plain string stands for its type; a section without a type is `bpe`."""
