"""The `data` section of a run file: where the text is, how it is filtered, segmented and prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from deepwire.config.counts import Count
from deepwire.config.section import MAY_CHANGE, Removed, Section, ShorthandSection, UnusedSettings
from deepwire.data.context import NO_CONTEXT, ContextConfig
from deepwire.data.languages import Direction, Languages, TagPlace, check_language, expand_directions
from deepwire.data.vocabulary_config import SentencePieceConfig, VocabularyConfig

STDIN = Path("-")

Column = Annotated[int, Field(ge=1)] | Annotated[str, Field(min_length=1)]
BadUtf8 = Literal["error", "skip", "replace"]
Role = Literal["train", "valid", "test"]

_Many = str | list[str]
_DirectionItem = str | dict[Literal["between", "and", "from", "to"], _Many]
Directions = Annotated[
    list[str],
    BeforeValidator(expand_directions, json_schema_input_type=_DirectionItem | list[_DirectionItem]),
    Field(min_length=1),
]


Unit = Literal["lines", "documents"]


class TextConfig(ShorthandSection):
    """Text of one side: documents one after the other, in blocks of tokens that cross their bounds.

    A plain string stands for the unit.
    """

    written_as = (str,)
    plain_sets = ("unit",)

    unit: Unit = Field(
        default="lines",
        description="lines: each is a document; documents: lines up to an empty one, with their line breaks",
    )
    block: Count = Field(
        default=256,
        ge=2,
        le=1 << 20,
        description="tokens of a training sequence; what a token sees ends at the beginning of its block, "
        "not at that of its document",
    )


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


class CorpusConfig(ShorthandSection):
    """One parallel text: a prefix, two files, a TSV or JSONL file, or OPUS-100 (exactly one of them).

    Every file may be plain, gzip, zstd or xz, whatever its name says. A plain string stands for a prefix.
    """

    written_as = (str,)
    plain_sets = ("prefix",)
    instead_of_plain = ("source_file", "target_file", "tsv", "jsonl", "opus100")

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
    opus100: Path | None = Field(
        default=None,
        description="with data.directions: folder of OPUS-100 as published, with supervised/ in it",
    )
    source_column: Column | None = Field(
        default=None,
        description="TSV: column number from 1 (default 1) or a name from the header line; "
        "JSONL: key, `a.b` for a nested one (default: the source language)",
    )
    target_column: Column | None = Field(
        default=None,
        description="the same for the target side (TSV default 2; JSONL default: the target language)",
    )
    alignments: Path | None = Field(
        default=None,
        description="train, two files: which words belong together, `0-0 1-2` for each line (Pharaoh)",
    )
    more_references: list[Path] = Field(
        default=[], description="test only: further references beside that of a prefix or target_file"
    )
    weight: float = Field(
        default=1.0,
        gt=0,
        description="relative share of sentences in an epoch: 2 means that each pair is seen twice",
    )
    name: str = Field(default="", description="what reports call this corpus; default: its file name")
    source: str | None = Field(
        default=None,
        description="with data.directions: language of the source side; read both ways if needed",
    )
    target: str | None = Field(default=None, description="with data.directions: language of the target side")
    languages: list[str] | None = Field(
        default=None,
        min_length=2,
        description="with data.directions: languages of text that has several; default: all of the run",
    )
    directions: Directions | None = Field(
        default=None,
        description="with data.directions: those that the corpus is for; default: all between its languages",
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.source_file is None) != (self.target_file is None):
            raise ValueError("source_file and target_file belong together: give both")
        forms = [self.prefix, self.source_file, self.tsv, self.jsonl, self.opus100]
        if sum(form is not None for form in forms) != 1:
            raise ValueError(
                "a corpus needs exactly one of prefix, source_file + target_file, tsv, jsonl, opus100"
            )
        if (self.more_references or self.alignments) and self.prefix is None and self.source_file is None:
            raise ValueError("more_references and alignments need a prefix, or source_file and target_file")
        if (self.source_column or self.target_column) and self.tsv is None and self.jsonl is None:
            raise ValueError("source_column and target_column are for tsv and jsonl only")
        if (self.source is None) != (self.target is None):
            raise ValueError("source and target of a corpus belong together: give both")
        if self.source is not None and self.languages is not None:
            raise ValueError("a corpus has either source and target, or languages")
        for name in filter(None, (self.source, self.target, *(self.languages or ()))):
            check_language(name)
        return self

    @property
    def label(self) -> str:
        """The name of this corpus in reports and errors: its name, else the name of its file."""
        path = self.prefix or self.source_file or self.tsv or self.jsonl or self.opus100
        return self.name or ("stdin" if path is None or path == STDIN else path.name)


def _as_list(value: object) -> object:
    return value if isinstance(value, (list, tuple)) else [value]


Corpora = Annotated[
    list[CorpusConfig], BeforeValidator(_as_list, json_schema_input_type=CorpusConfig), Field(min_length=1)
]


class DataConfig(Section):
    """Languages, corpora, vocabulary and filters of a run."""

    removed: ClassVar[dict[str, Removed]] = {
        "term_hints": Removed((0.0,), "terms come in where text is translated (decoding.term_search)"),
        "noise": Removed((None,), "put the noise into a file of training text"),
        "placeholders": Removed((False,), "they are kept where text is translated (decoding.placeholders)"),
    }

    source: str = Field(
        default="source",
        pattern=r"^[^\s/\\]+$",
        description="source language; also the file ending of a prefix",
    )
    target: str = Field(default="target", pattern=r"^[^\s/\\]+$", description="target language")
    directions: Directions | None = Field(
        default=None,
        description="instead of source and target: a list of SRC-TGT, {between: [...], and: [...]} (both "
        "ways) and {from: [...], to: [...]}",
    )
    tag: TagPlace = Field(
        default="source",
        description="with directions: where the tag of the target language stands; target: instead of BOS",
    )
    sampling_temperature: float = Field(
        default=1.0,
        ge=1,
        description="with directions: share of each in an epoch, (its share of the text) ^ (1 / temperature)",
    )
    train: Corpora = Field(
        json_schema_extra=MAY_CHANGE, description="training text: a prefix, one corpus, or a list of them"
    )
    valid: Corpora | None = Field(
        json_schema_extra=MAY_CHANGE,
        default=None,
        description="validation text; with directions it may be a list of corpora",
    )
    test: Corpora | None = Field(
        json_schema_extra=MAY_CHANGE, default=None, description="test text, in the same forms"
    )
    text: TextConfig | None = Field(
        default=None,
        description="task: language_model: text of the target side alone; train is PREFIX.<target>, or "
        "without data.target the file itself",
    )
    vocabulary: VocabularyConfig = Field(
        default={"type": "bpe"}, validate_default=True, description="how text is cut into subwords"
    )
    context: ContextConfig = Field(
        NO_CONTEXT, description="previous sentences of the document in front of each sentence"
    )
    filters: FilterConfig = Field(default_factory=FilterConfig, description="which training pairs to drop")
    prepared: Path = Field(
        json_schema_extra=MAY_CHANGE, default=Path("prepared"), description="folder of prepared corpora"
    )
    source_bos: bool = Field(default=False, description="put the begin-of-sentence symbol on the source too")
    on_bad_utf8: BadUtf8 = Field(
        default="error",
        description="a line that is not UTF-8: stop, skip the pair, or replace the bytes by U+FFFD",
    )

    @property
    def names_target(self) -> bool:
        """Whether `target` says which language the target side is in."""
        return self.target != str(type(self).model_fields["target"].default)

    @property
    def languages(self) -> Languages | None:
        """The languages of a run with several directions; None with `source` and `target`."""
        if self.directions is None:
            return None
        return Languages(tuple(map(Direction.parse, self.directions)), self.tag)

    def corpora(self) -> dict[Role, list[CorpusConfig]]:
        """The corpora of each role that has some, as they are written."""
        roles: tuple[tuple[Role, list[CorpusConfig] | None], ...] = (
            ("train", self.train),
            ("valid", self.valid),
            ("test", self.test),
        )
        return {role: corpora for role, corpora in roles if corpora is not None}

    @model_validator(mode="after")
    def _check_corpora(self) -> Self:
        for role, corpora in self.corpora().items():
            if role != "train" and any(corpus.weight != 1 or corpus.alignments for corpus in corpora):
                raise ValueError(f"{role} cannot have a weight or alignments: they are for train")
            if role != "train" and len(corpora) > 1 and not self.directions:
                raise ValueError(f"{role} is one corpus, not {len(corpora)}; several need directions")
            if any(corpus.more_references for corpus in corpora) and (role != "test" or self.directions):
                why = "with directions" if role == "test" else f"in {role}"
                raise ValueError(f"more_references are for test with source and target, not {why}")
        if self.aligned and (self.directions or self.context.used):
            asked = "directions" if self.directions else "context"
            raise ValueError(f"alignments of a corpus and data.{asked} exclude each other")
        if self.text is not None:
            self._check_text(self.text)
        elif self.languages is None:
            self._check_two_languages()
        else:
            self._check_directions(self.languages)
        return self

    @property
    def aligned(self) -> bool:
        """Whether some training text comes with alignments."""
        return any(corpus.alignments is not None for corpus in self.train)

    def unused_settings(self) -> UnusedSettings:
        """Settings of pairs, where there is text of one side, and of directions, where there is one."""
        if self.text is not None:
            for name in ("source", "tag", "sampling_temperature", "source_bos"):
                yield name, "a language model reads one text, and no pairs"
            for name in FilterConfig.model_fields:
                yield f"filters.{name}", "a language model learns from all of its text"
            yield "vocabulary.joint", "a language model has one text"
        elif self.directions is None:
            names = ["tag", "sampling_temperature"]
            if isinstance(self.vocabulary, SentencePieceConfig):
                names.append("vocabulary.balance_temperature")
            for name in names:
                yield name, "there are no data.directions"

    def _check_text(self, text: TextConfig) -> None:
        """A language model reads one text, and every word of it."""
        wanted = {
            "data.directions": self.directions is not None,
            "data.context": self.context.used,
            "data.vocabulary.sampling": self.vocabulary.sampling > 0,
        }
        if asked := [name for name, is_set in wanted.items() if is_set]:
            raise ValueError(f"{asked[0]} is for pairs of sentences, and a language model reads one text")
        for role, corpora in self.corpora().items():
            if any(corpus.prefix is None and corpus.jsonl is None for corpus in corpora):
                raise ValueError(
                    f"{role}: a language model reads files of text, a prefix with a target, or jsonl"
                )
            if text.unit != "lines" and any(corpus.jsonl for corpus in corpora):
                raise ValueError(
                    f"{role}: a line of jsonl is a document of its own: set data.text.unit to lines"
                )

    def _check_two_languages(self) -> None:
        every = [corpus for corpora in self.corpora().values() for corpus in corpora]
        if self.source == self.target and any(
            corpus.prefix is not None or (corpus.jsonl is not None and corpus.source_column is None)
            for corpus in every
        ):
            raise ValueError(f"source and target are both {self.source!r}: both sides would be the same text")
        if any(corpus.source or corpus.languages or corpus.directions or corpus.opus100 for corpus in every):
            raise ValueError(
                "source, target, languages, directions and opus100 of a corpus need data.directions"
            )

    def _check_directions(self, languages: Languages) -> None:
        if (self.source, self.target) != ("source", "target"):
            raise ValueError(
                "directions stand instead of source and target: leave these out, or set directions=null"
            )
        if not self.vocabulary.joint:
            raise ValueError("directions need one vocabulary for all languages: set vocabulary.joint to true")
        for role, corpora in self.corpora().items():
            for corpus in corpora:
                _check_multilingual(role, corpus, languages)
        for direction in languages.directions:
            if not any(serves(corpus, direction) for corpus in self.train):
                raise ValueError(f"no corpus of train has text for the direction {direction}")


def serves(corpus: CorpusConfig, direction: Direction) -> bool:
    """Whether a corpus is declared to have text for a direction."""
    if corpus.directions is not None and str(direction) not in corpus.directions:
        return False
    if corpus.source is not None:
        return {corpus.source, corpus.target} == set(direction)
    return corpus.languages is None or set(direction) <= set(corpus.languages)


def _check_multilingual(role: Role, corpus: CorpusConfig, languages: Languages) -> None:
    name = f"{role} {corpus.label}"
    of_two = corpus.source_file or corpus.tsv or corpus.source_column or corpus.target_column
    if corpus.source is None and of_two:
        raise ValueError(f"{name}: say which languages it holds with source and target")
    for language in (corpus.source, corpus.target, *(corpus.languages or ())):
        if language is not None and language not in languages.names:
            known = ", ".join(languages.names)
            raise ValueError(f"{name}: no direction has the language {language!r} (they have {known})")
    for direction in map(Direction.parse, corpus.directions or ()):
        if direction not in languages.directions or not serves(corpus, direction):
            raise ValueError(f"{name}: {direction} is not among its languages, or not in data.directions")
    if not any(serves(corpus, direction) for direction in languages.directions):
        raise ValueError(f"{name}: none of the directions is between its languages")
