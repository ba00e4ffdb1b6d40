"""The `data` section of a run file: where the text is, how it is filtered, segmented and prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from deepwire.config.base import Section
from deepwire.config.quantities import Count
from deepwire.data.vocabulary_config import VocabularyConfig

STDIN = Path("-")

BadUtf8 = Literal["error", "skip", "replace"]


class CorpusConfig(Section):
    """One parallel text: a prefix, two files, a TSV file or a JSONL file (exactly one of them).

    Every file may be plain, gzip, zstd or xz, whatever its name says. A plain string stands for a prefix.
    """

    prefix: Path | None = Field(
        default=None, description="PREFIX.<source> and PREFIX.<target>, each also with .gz, .zst or .xz"
    )
    source_file: Path | None = Field(default=None, description="text of the source side; - is stdin")
    target_file: Path | None = Field(
        default=None, description="text of the target side, line by line a translation"
    )
    tsv: Path | None = Field(
        default=None, description="one pair a line, columns separated by tabs; - is stdin"
    )
    jsonl: Path | None = Field(default=None, description="one JSON object a line; - is stdin")
    source_column: int | str | None = Field(
        default=None,
        description="TSV: column number from 1 (default 1) or a name from the header line; "
        "JSONL: key, `a.b` for a nested one (default: the source language)",
    )
    target_column: int | str | None = Field(
        default=None,
        description="the same for the target side (TSV default 2; JSONL default: the target language)",
    )
    weight: float = Field(
        default=1.0,
        gt=0,
        description="relative share of sentences in an epoch: 2 means that each pair is seen twice",
    )
    name: str = Field(default="", description="what reports call this corpus; default: its file name")

    @model_validator(mode="before")
    @classmethod
    def _prefix_from_string(cls, value: object) -> object:
        return {"prefix": value} if isinstance(value, (str, Path)) else value

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.source_file is None) != (self.target_file is None):
            raise ValueError("source_file and target_file belong together: give both")
        forms = [self.prefix, self.source_file, self.tsv, self.jsonl]
        if sum(form is not None for form in forms) != 1:
            raise ValueError("a corpus needs exactly one of prefix, source_file + target_file, tsv, jsonl")
        if self.source_file == STDIN and self.target_file == STDIN:
            raise ValueError("source_file and target_file cannot both be stdin (-); use tsv: - for pairs")
        if self.prefix == STDIN:
            raise ValueError("a prefix cannot be stdin (-); use tsv: - or jsonl: -")
        self._check_columns()
        return self

    def _check_columns(self) -> None:
        columns = [column for column in (self.source_column, self.target_column) if column is not None]
        if columns and self.tsv is None and self.jsonl is None:
            raise ValueError("source_column and target_column are for tsv and jsonl only")
        for column in columns:
            if isinstance(column, int) and column < 1:
                raise ValueError(f"columns are counted from 1, not {column}")
            if isinstance(column, int) and self.jsonl is not None:
                raise ValueError(f"a jsonl column is a key, not the number {column}")
            if column == "":
                raise ValueError("a column name cannot be empty")
        if self.tsv is not None:
            columns = [self.source_column or 1, self.target_column or 2]
        if len(columns) == 2 and columns[0] == columns[1]:
            raise ValueError(f"source_column and target_column are both {columns[0]!r}")

    @property
    def label(self) -> str:
        """What reports and errors call this corpus: its name, else the name of its file."""
        path = self.prefix or self.source_file or self.tsv or self.jsonl
        return self.name or ("stdin" if path is None or path == STDIN else path.name)


def _as_list(value: object) -> object:
    return value if isinstance(value, (list, tuple)) else [value]


Corpora = Annotated[list[CorpusConfig], BeforeValidator(_as_list), Field(min_length=1)]


class FilterConfig(Section):
    """Which pairs training leaves out. Lengths count characters or subwords, never words between spaces."""

    min_characters: Count = Field(default=1, ge=1, description="shortest side, in characters")
    max_characters: Count = Field(
        default=2000, ge=1, description="longest side, in characters, before segmentation"
    )
    max_length: Count = Field(
        default=256, ge=1, description="longest side, in subwords, applied by preparation"
    )
    max_ratio: float = Field(
        default=4.0,
        ge=1,
        description="longer side over shorter side, in letters (an ideograph counts as three)",
    )
    drop_duplicates: bool = Field(default=True, description="keep only the first of equal pairs")
    drop_copies: bool = Field(default=False, description="drop pairs whose two sides are the same")

    @model_validator(mode="after")
    def _lengths_in_order(self) -> Self:
        if self.min_characters > self.max_characters:
            raise ValueError(
                f"min_characters {self.min_characters} is above max_characters {self.max_characters}"
            )
        return self


class DataConfig(Section):
    """Languages, corpora, vocabulary and filters of a run."""

    source: str = Field(
        default="source",
        pattern=r"^[^\s/\\]+$",
        description="source language; also the file ending of a prefix",
    )
    target: str = Field(default="target", pattern=r"^[^\s/\\]+$", description="target language")
    train: Corpora = Field(description="training text: a prefix, one corpus, or a list of them")
    valid: CorpusConfig | None = Field(default=None, description="validation text")
    test: CorpusConfig | None = Field(default=None, description="test text")
    vocabulary: VocabularyConfig = Field(
        default={"type": "bpe"}, validate_default=True, description="how text is cut into subwords"
    )
    filters: FilterConfig = Field(default_factory=FilterConfig, description="which training pairs to drop")
    prepared: Path = Field(default=Path("prepared"), description="folder of prepared corpora")
    source_bos: bool = Field(default=False, description="put the begin-of-sentence symbol on the source too")
    on_bad_utf8: BadUtf8 = Field(
        default="error",
        description="a line that is not UTF-8: stop, skip the pair, or replace the bytes by U+FFFD",
    )

    @model_validator(mode="after")
    def _check_corpora(self) -> Self:
        every = [*self.train, *(corpus for corpus in (self.valid, self.test) if corpus is not None)]
        if self.source == self.target and any(
            corpus.prefix is not None or (corpus.jsonl is not None and corpus.source_column is None)
            for corpus in every
        ):
            raise ValueError(f"source and target are both {self.source!r}: both sides would be the same text")
        for role, corpus in (("valid", self.valid), ("test", self.test)):
            if corpus is not None and corpus.weight != 1:
                raise ValueError(f"{role} cannot have a weight: weights are for train")
        return self
