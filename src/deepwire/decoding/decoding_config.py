"""The ``decoding`` section of a run file: how a translation is searched for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from deepwire.config.counts import Count
from deepwire.config.section import MAY_CHANGE, Removed, Section, UnusedSettings
from deepwire.errors import UsageError

LengthPenaltyForm = Literal["gnmt", "average"]
StopRule = Literal["first", "optimal"]
_GROUPS = re.compile(r"([1-9][0-9]{0,3})(?::([1-9][0-9]{0,3}))?")


def _as_group_range(value: object) -> str:
    """Check `4` or `3:6`."""
    text = str(value).strip()
    match = None if isinstance(value, bool) else _GROUPS.fullmatch(text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise ValueError(f"must be a group such as 4 or a range such as 3:6, counted from 1, not {value!r}")
    return text


GroupRange = Annotated[str, BeforeValidator(_as_group_range, json_schema_input_type=int)]
"""Groups of decoder layers, counted from 1: `4`, or `3:6` with both ends."""


class SamplingConfig(Section):
    """Draw translations at random instead of searching for the best one."""

    temperature: float = Field(
        1.0,
        gt=0,
        le=100,
        description="divides the log-probabilities; below 1 = more careful",
    )
    top_k: int = Field(0, ge=0, description="sample from the k most probable subwords only; 0 = all of them")
    top_p: float = Field(
        1.0,
        gt=0,
        le=1,
        description="sample from the fewest subwords that together reach probability p; 1 = all",
    )
    epsilon: float = Field(
        0.0, ge=0, lt=1, description="sample from subwords of at least this probability only; 0 = all"
    )
    mbr: int = Field(
        0,
        ge=0,
        le=1000,
        description="minimum Bayes risk: draw so many translations, and return the one that agrees best with "
        "all by chrF; 0 = off",
    )
    seed: int = Field(
        1, ge=0, lt=2**63, description="seed of sampling; the same seed gives the same translation"
    )


class AlignmentConfig(Section):
    """Which attention says what a word of a translation comes from.

    A subword belongs to the subword of the source that has the largest weight: in the step that writes it, or
    in the one that reads it, which knows it (Chen et al. 2020, Accurate Word Alignment Induction from Neural
    Machine Translation, section 3.1).
    """

    removed: ClassVar[dict[str, Removed]] = {"units": Removed(("words",), "links are those of words")}

    layer: int | None = Field(
        None,
        ge=1,
        description="decoder layer, from 1; null = what training found best; the first where it did not look",
    )
    head: int | None = Field(None, ge=1, description="head, from 1; null = the mean of all")
    step: Literal["writes", "reads"] = Field(
        "reads", description="the step of the decoder that writes a subword, or the next one, which reads it"
    )


class DecodingConfig(Section):
    """Settings of ``translate``, of BLEU during training and of ``evaluate``.

    The score of a hypothesis with log-probability ``logp`` and ``len`` subwords (EOS counted) is
    ``logp / ((5 + len) / 6) ** length_penalty`` in the form ``gnmt`` (Wu et al. 2016, eq. 14) and
    ``logp / len ** length_penalty`` in the form ``average`` (fairseq; 1 = mean log-probability).
    """

    beam: int = Field(4, ge=1, le=1000, description="hypotheses kept per sentence; 1 = greedy search")
    length_penalty: float = Field(
        0.6, ge=-10, le=10, description="exponent of the length penalty; 0 = none, larger = longer output"
    )
    length_penalty_form: LengthPenaltyForm = Field(
        "gnmt", description="gnmt: logp / ((5+len)/6)^a; average: logp / len^a"
    )
    stop: StopRule = Field(
        "first",
        description="optimal: a sentence ends when no open hypothesis can still enter the n-best list; "
        "first: then too, or before, with its beam-th finished hypothesis",
    )
    max_length_ratio: float = Field(
        2.0, ge=0, le=100, description="longest output: ratio * source subwords + max_length_extra subwords"
    )
    max_length_extra: int = Field(50, ge=0, le=100_000, description="see max_length_ratio")
    min_length: int = Field(1, ge=0, le=100_000, description="fewest subwords before EOS")
    max_source_length: int = Field(
        1024,
        ge=1,
        le=1_000_000,
        description="lines with more subwords are translated in pieces",
    )
    n_best: int = Field(1, ge=1, le=1000, description="translations (or samples) returned per line")
    no_repeat_ngram: int = Field(0, ge=0, le=1000, description="no n-gram of this size occurs twice; 0 = off")
    unknown_penalty: float | None = Field(
        None, ge=0, description="subtracted from the log-probability of UNK; null = UNK is never produced"
    )
    groups: GroupRange | None = Field(
        None,
        description="decoder fusion groups: predict with one group (4) or a range (3:6) alone, their weights "
        "scaled to sum to 1 (GTrans, Table VI); null = with all",
    )
    rounds: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="encoder with recurrent depth: how often its middle layers run, which takes time; "
        "null = as model.encoder.recurrence says",
    )
    placeholders: bool = Field(
        False,
        description="keep numbers, addresses, %s, {name} and tags of the source unchanged; decode a line "
        "again that lacks one",
    )
    term_search: Literal["beam", "prefer"] = Field(
        "beam",
        description="how terms are kept. beam: decode a line that lacks one again, with a wide constrained "
        "beam; prefer: give terms a bonus in the search, which keeps most of them in nearly the same time",
    )
    guards: bool = Field(
        False,
        description="copy lines without words; decode again without repeated n-grams if a translation "
        "repeats itself or does not end",
    )
    alignment: AlignmentConfig = Field(
        default_factory=AlignmentConfig, description="how translations are aligned, where that is asked for"
    )
    casing: bool = Field(
        False,
        description="lines in capitals or title case are translated as ordinary sentences, and the "
        "translations written alike",
    )
    sampling: SamplingConfig | None = Field(None, description="sample instead of beam search")
    batch_tokens: Count = Field(
        8192,
        ge=1,
        json_schema_extra=MAY_CHANGE,
        description="source subwords with padding, times hypotheses per sentence, in one batch",
    )
    cuda_graphs: bool | Literal["auto"] = Field(
        "auto",
        json_schema_extra=MAY_CHANGE,
        description="on a GPU: start all kernels of a step at once; auto: where 16 GiB of memory are free",
    )
    window: Count = Field(
        4096,
        ge=1,
        le=1_000_000,
        json_schema_extra=MAY_CHANGE,
        description="lines read ahead and sorted by length; bounds the memory",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.max_length_ratio == 0 and self.max_length_extra == 0:
            raise ValueError("max_length_ratio and max_length_extra are both 0: no output would be allowed")
        if self.sampling is None and self.n_best > self.beam:
            raise ValueError(f"n_best must be at most beam ({self.beam}), but is {self.n_best}")
        if self.sampling is not None and self.sampling.mbr and self.sampling.mbr < max(2, self.n_best):
            raise ValueError(
                f"sampling.mbr chooses n_best ({self.n_best}) of two translations or more, but is "
                f"{self.sampling.mbr}"
            )
        return self

    def unused_settings(self) -> UnusedSettings:
        """A beam beside sampling."""
        if self.sampling is not None:
            for name in ("beam", "stop"):
                yield name, "sampling draws translations and searches for none"

    @property
    def width(self) -> int:
        """Decoder rows per sentence: the beam, or the number of samples."""
        return self.beam if self.sampling is None else self.sampling.mbr or self.n_best

    @property
    def group_range(self) -> tuple[int, int] | None:
        """First and last group that the prediction is made of; None for all."""
        if self.groups is None:
            return None
        first, _, last = self.groups.partition(":")
        return int(first), int(last or first)

    def length_divisor(self, length: int) -> float:
        """The length penalty of `length` subwords, EOS counted: what divides a log-probability."""
        base = (5.0 + length) / 6.0 if self.length_penalty_form == "gnmt" else float(length)
        return float(base**self.length_penalty)

    def output_limit(self, source_length: int) -> int:
        """Most subwords of a translation of ``source_length`` subwords; EOS counts on neither side."""
        return max(1, int(self.max_length_ratio * source_length) + self.max_length_extra)


def given_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings without those that are None where None is no value: such a setting was not given."""
    filled = {name for name, field in DecodingConfig.model_fields.items() if field.default is not None}
    return {name: value for name, value in settings.items() if value is not None or name not in filled}


def all_of_sampling(sampling: object) -> object:
    """Settings of ``sampling`` with defaults for the others, so that none of a stored model stays.

    A value that is no mapping is returned, for `with_settings` to refuse.
    """
    return {**SamplingConfig().model_dump(), **sampling} if isinstance(sampling, Mapping) else sampling


def with_settings(config: DecodingConfig, settings: Mapping[str, object]) -> DecodingConfig:
    """These settings with others on top; of `alignment` and `sampling` only the keys that are named.

    Raises:
        UsageError: A setting is impossible or has no effect, or they are no mapping.
    """
    from deepwire.config.settings_reader import from_mapping  # reads YAML, which --help is spared

    if not isinstance(settings, Mapping):
        raise UsageError(
            f'decoding settings: give a mapping such as {{"beam": 8}}, not {type(settings).__name__}'
        )
    both = {**config.model_dump(), **settings}
    if isinstance(changed := both["alignment"], Mapping):
        # A stored head belongs to the stored layer.
        forgotten = {"head": None} if changed.get("layer") is not None else {}
        both["alignment"] = {**config.alignment.model_dump(), **forgotten, **changed}
    if config.sampling is not None and isinstance(changed := both["sampling"], Mapping):
        both["sampling"] = {**config.sampling.model_dump(), **changed}
    made = from_mapping(DecodingConfig, both, "decoding settings", allow_unused=True)
    for name, reason in made.unused_settings():
        if name in settings:  # a stored setting without effect is not the user's mistake
            raise UsageError(f"decoding settings: {name}: {reason}", "leave it out, or set sampling to null")
    return made
