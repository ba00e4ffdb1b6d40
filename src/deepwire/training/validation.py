"""Scores on the validation set, by direction where there are several: loss, perplexity, BLEU and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, zip_longest
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from deepwire.data.batches.batching import validation_batches
from deepwire.data.batches.collator import Batch
from deepwire.data.batches.token_store import TokenStore
from deepwire.data.context import NO_CONTEXT, ContextConfig
from deepwire.data.languages import Direction, Languages
from deepwire.data.vocabulary import Vocabularies
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DivergedError
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.training.config import ValidationConfig
from deepwire.training.device import PrecisionPolicy, to_device
from deepwire.training.spec import ScoreTexts, TranslateTexts

DIVERGED_HINT = (
    "try a lower training.schedule.peak or training.clip_norm with --fresh, or training.precision=fp32"
)

# Sentences translated between two looks at the signals.
_CHUNK = 512


def perplexity(nll: float) -> float:
    """exp of a loss per token in nats; infinite where that is too large for a float."""
    return math.inf if nll >= 700 else math.exp(nll)  # of what is no number, neither


@dataclass(frozen=True)
class Validation:
    """The findings of one validation.

    Attributes:
        scores: ``loss`` (smoothed) and ``nll`` per target token in nats, ``perplexity``; then ``bleu`` and
            other metrics of translations where they were asked for. Of a language model also
            ``word_perplexity``, ``byte_perplexity`` and ``bits_per_byte``.
        translations: The translated validation set; empty where none of these was scored.
        directions: What was found in each direction, of which ``scores`` are the averages; empty with one.
    """

    scores: dict[str, float]
    translations: list[str]
    directions: dict[str, Validation] = field(default_factory=dict)


@dataclass(frozen=True)
class OneDirection:
    """The part of a validation set that one direction of several is scored on.

    Attributes:
        languages: All of the model.
        direction: This one.
        lines: ``[pairs]``, its pairs in the store.
    """

    languages: Languages
    direction: Direction
    lines: NDArray[np.int64]


@dataclass
class Validator:
    """Scores a model on the validation set, of which each process takes its share.

    Attributes:
        store: The prepared validation set.
        config: What is scored and how often.
        smoothing: Label smoothing and its form as in training, so that the losses compare.
        source_bos: Whether sources begin with BOS.
        translate: Raw texts to raw translations; None: translations are not scored.
        score: A metric of translations against references; None: likewise.
        vocabularies: Handed to ``translate``.
        processes: Those that share the work; all get the same scores.
        part: The direction to score, of a set with several; default: the whole set.
        context: What of the document stands in front of a sentence.
    """

    store: TokenStore
    config: ValidationConfig
    smoothing: tuple[float, SmoothingForm]
    source_bos: bool
    vocabularies: Vocabularies
    translate: TranslateTexts | None
    score: ScoreTexts | None
    processes: ProcessGroup
    part: OneDirection | None = None
    context: ContextConfig = NO_CONTEXT

    def __post_init__(self) -> None:
        lines = np.arange(len(self.store)) if self.part is None else self.part.lines
        self.lines = lines[: self.config.max_sentences or len(lines)]
        self.size = len(self.lines)

    @torch.no_grad()
    def run(
        self,
        model: TranslationModel,
        precision_policy: PrecisionPolicy,
        update: int,
        interrupted: Callable[[], bool],
        *,
        last: bool = False,
    ) -> Validation | None:
        """Score ``model``; None when ``interrupted`` said so in a process, and then nothing has changed.

        The ``last`` model of a training is translated with in any case, so that it has every score.

        Raises:
            DivergedError: The loss is not finite.
        """
        model.eval()
        try:
            scores = self._losses(model, precision_policy, interrupted)
            if scores is not None and not math.isfinite(scores["loss"]):
                raise DivergedError(f"the validation loss is not finite after update {update}", DIVERGED_HINT)
            due = last or update % (self.config.bleu_every or self.config.every) == 0
            if scores is None or not (due and self.config.text_metrics):
                return None if scores is None else Validation(scores, [])
            return self._with_texts(model, scores, interrupted)
        finally:
            model.train()

    def _losses(
        self, model: TranslationModel, precision_policy: PrecisionPolicy, interrupted: Callable[[], bool]
    ) -> dict[str, float] | None:
        device = next(model.parameters()).device
        sums, stopped = torch.zeros(3, dtype=torch.float64, device=device), False
        for batch in islice(self._batches(), self.processes.rank, None, self.processes.count):
            stopped = interrupted()
            if stopped:
                break
            inputs = to_device(batch, device)
            with precision_policy.autocast():
                loss = model.loss(
                    inputs.source,
                    inputs.target_input,
                    inputs.target_output,
                    *self.smoothing,
                    languages=inputs.languages,
                )
            sums += torch.stack([loss.smoothed.double(), loss.nll.double(), loss.tokens.double()])
        smoothed, nll, tokens, stops = self.processes.all_reduce_numbers([*sums.tolist(), stopped])
        if stops:
            return None
        scores = {"loss": smoothed / tokens, "nll": nll / tokens, "perplexity": perplexity(nll / tokens)}
        return scores | self._of_text(nll)

    def _of_text(self, nll: float) -> dict[str, float]:
        """The perplexities of a text of one side that do not depend on its subwords."""
        if not self.store.packed:
            return {}
        words, size = self._words_and_bytes
        return {
            "word_perplexity": perplexity(nll / max(words, 1)),
            "byte_perplexity": perplexity(nll / max(size, 1)),
            "bits_per_byte": nll / max(size, 1) / math.log(2),
        }

    @cached_property
    def _words_and_bytes(self) -> tuple[int, int]:
        """Words and bytes of the lines that end in the blocks that are scored, with their line ends."""
        texts = [self.store.target_text(line) for line in self.lines.tolist()]
        return sum(len(text.split()) for text in texts), sum(len(text.encode()) for text in texts)

    def _batches(self) -> Iterator[Batch]:
        if self.part is not None:
            yield from validation_batches(
                self.store,
                self.config.max_tokens,
                source_bos=self.source_bos,
                languages=self.part.languages,
                lines=self.lines,
                context=self.context,
            )
            return
        for batch in validation_batches(
            self.store, self.config.max_tokens, source_bos=self.source_bos, context=self.context
        ):
            rows = batch.lines < self.size
            if rows.all():
                yield batch
            elif rows.any():
                yield replace(
                    batch,
                    source=batch.source[rows],
                    target_input=batch.target_input[rows],
                    target_output=batch.target_output[rows],
                    lines=batch.lines[rows],
                )

    def _with_texts(
        self, model: TranslationModel, scores: dict[str, float], interrupted: Callable[[], bool]
    ) -> Validation | None:
        if self.translate is None or self.score is None:
            return Validation(scores, [])
        translations = self._translations(model, self.translate, interrupted)
        if translations is None:
            return None
        lines = self.lines.tolist()
        references = [self.store.target_text(line) for line in lines]
        sources = [self.store.source_text(line) for line in lines]
        to = {} if self.part is None else {"language": self.part.direction.target}
        text_scores: dict[str, float] = {}
        if self.processes.main:
            text_scores = {
                name: self.score(name, translations, references, sources, **to)
                for name in self.config.text_metrics
            }
        text_scores = cast("dict[str, float]", self.processes.broadcast_value(text_scores))
        return Validation({**scores, **text_scores}, translations)

    def _translations(
        self, model: TranslationModel, translate: TranslateTexts, interrupted: Callable[[], bool]
    ) -> list[str] | None:
        """The translated validation set: chunks of it go to the processes in turn."""
        own, stopped = list[list[str]](), False
        for lines in self._chunks()[self.processes.rank :: self.processes.count]:
            stopped = interrupted()
            if stopped:
                break
            places, sources = self._with_documents(lines)
            into = {} if self.part is None else {"to": self.part.direction.target}
            translations = translate(model, self.vocabularies, sources, **into)
            own.append([translations[place] for place in places])
        shares = cast("list[list[list[str]] | None]", self.processes.gather(None if stopped else own))
        whole = [share for share in shares if share is not None]
        if len(whole) < len(shares):
            return None
        turns = zip_longest(*whole, fillvalue=[])
        return [text for turn in turns for chunk in turn for text in chunk]

    def _chunks(self) -> list[list[int]]:
        """The lines in chunks that are translated one after the other; no document is in two of them."""
        size, lines = max(1, min(_CHUNK, math.ceil(self.size / self.processes.count))), self.lines.tolist()
        if not self.context.used:
            return [lines[start : start + size] for start in range(0, self.size, size)]
        chunks: list[list[int]] = [[]]
        for line in lines:
            if len(chunks[-1]) >= size and self._previous(line) < 0:
                chunks.append([])
            chunks[-1].append(line)
        return chunks

    def _with_documents(self, lines: list[int]) -> tuple[list[int], list[str]]:
        """Where each of the lines is in a text, and the text: with an empty line between two documents.

        What is context alone is in it too.
        """
        if not self.context.used:
            return list(range(len(lines))), [self.store.source_text(line) for line in lines]
        places, text = list[int](), list[str]()
        last = -1
        for line in lines:
            between, before = list[str](), self._previous(line)
            while before not in (-1, last):
                between.append(self.store.source_text(before))
                before = self._previous(before)
            text += [""] if before == -1 else []
            text += [*reversed(between), self.store.source_text(line)]
            places.append(len(text) - 1)
            last = line
        return places, text

    def _previous(self, line: int) -> int:
        return -1 if self.store.previous is None else int(self.store.previous[line])


MAX_SHOWN = 26
"""With so many directions each has a line in the log; of more, the average alone."""


@dataclass
class DirectionsValidator:
    """Scores every direction of a validation set; the scores of the whole are their averages.

    Every direction counts the same, however much text it has. Perplexity is that of the average nll.

    Attributes:
        validators: One for each direction, by name.
    """

    validators: Mapping[str, Validator]

    @torch.no_grad()
    def run(
        self,
        model: TranslationModel,
        precision_policy: PrecisionPolicy,
        update: int,
        interrupted: Callable[[], bool],
        *,
        last: bool = False,
    ) -> Validation | None:
        """Score ``model`` in each direction, as `Validator.run` does."""
        by_direction: dict[str, Validation] = {}
        for name, validator in self.validators.items():
            validation = validator.run(model, precision_policy, update, interrupted, last=last)
            if validation is None:
                return None
            by_direction[name] = validation
        scores = [validation.scores for validation in by_direction.values()]
        return Validation(average(scores), [], by_direction)


def average(scores: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each score; the perplexity that belongs to the mean nll."""
    means = {name: sum(each[name] for each in scores) / len(scores) for name in scores[0]}
    return {**means, "perplexity": perplexity(means["nll"])}


def directions_in(store: TokenStore, languages: Languages) -> dict[str, OneDirection]:
    """The directions that a validation set has text of, by name, in the order of the run file."""
    numbers = np.zeros(len(store), np.int64) if store.directions is None else store.directions[:]
    parts = {
        str(direction): OneDirection(languages, direction, np.flatnonzero(numbers == place))
        for place, direction in enumerate(languages.directions)
    }
    return {name: part for name, part in parts.items() if len(part.lines)}
