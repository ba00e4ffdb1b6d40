"""The search for translations of a batch of sentences: beam search, greedy search and sampling.

`run_search` is the loop of all of them: the model says what may follow, the search chooses, sentences that
have ended leave the batch. Each step of beam search extends all open hypotheses by one subword, keeps the
best, and moves finished ones to a list. Each row of the decoder's state then becomes the row that its
hypothesis continues (`BeamSearch.parent_rows`); no key or value moves, see `CacheIndex.reorder` in
`deepwire.model.kv_cache`.

Sampling draws from the model with a temperature, from the k most probable subwords (top-k) or from those that
together reach probability p (top-p, Holtzman et al. 2020).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS, PAD, UNK
from deepwire.decoding.decoding_config import DecodingConfig, StopRule
from deepwire.decoding.model_inputs import Cancelled, batch_compaction, pad_batch
from deepwire.decoding.models import StepModel
from deepwire.decoding.phrases import Phrase, PreferredPhrases
from deepwire.errors import ModelError
from deepwire.model.captured_steps import CapturedModel
from deepwire.ops.cpu_tape import BeamSteps, Numbers, library

IMPOSSIBLE = -torch.inf


@dataclass(frozen=True)
class Batch:
    """Sentences that are translated together.

    Attributes:
        source: `[N, S]` subword ids, padded with PAD.
        limits: Most subwords of each translation; EOS comes on top.
        draws: A number for each, from which its random numbers follow; for sampling.
        prefixes: Subwords that each translation must begin with; None: none.
        prompts: What the decoder reads in front of each translation; None: BOS.
        languages: `[N]` the target languages; None with one direction.
        pieces: Entries of the vocabulary that can be predicted; those after them are tags and a separator.
            None: all.
        context_ids: Subwords that the model has read before each, or None. They count in the shortest output,
            and no n-gram of theirs is repeated.
        bonus_phrases: Phrases that each translation should rather have; random draws do not heed them.
        shortlist: `[k]` ascending, the subwords whose log-probabilities the model gives: it begins with PAD,
            BOS, EOS and UNK. None: all.
        stop: Once it is set, the search raises `Cancelled`.
    """

    source: Tensor
    limits: Sequence[int]
    draws: Sequence[int] = ()
    prefixes: Sequence[Sequence[int]] | None = None
    prompts: Sequence[Sequence[int]] | None = None
    languages: Tensor | None = None
    pieces: int | None = None
    context_ids: Sequence[Sequence[int]] | None = None
    bonus_phrases: Sequence[Sequence[Phrase]] | None = None
    shortlist: Tensor | None = None
    stop: Event | None = None

    def start(self, model: StepModel) -> tuple[Tensor, Any]:
        """The tokens that the first step reads, `[N]`, and the state of the model before it."""
        prompts, prompt = self.prompts or [[BOS]] * self.source.size(0), None
        if any(len(tokens) > 1 for tokens in prompts):
            prompt = pad_batch([tokens[:-1] for tokens in prompts], self.source.device)
        first = torch.tensor([tokens[-1] for tokens in prompts], device=self.source.device)
        return first, model.start(self.source, languages=self.languages, prompt=prompt)


@dataclass(frozen=True)
class Hypothesis:
    """One translation in subword ids."""

    ids: tuple[int, ...]
    """Without BOS and EOS."""
    log_probability: float
    """Natural logarithm, summed over the subwords and EOS; an unknown penalty, if set, is in it."""
    score: float
    """`log_probability` under the length penalty; what hypotheses are ranked by."""


def generate(model: StepModel, batch: Batch, config: DecodingConfig) -> list[list[Hypothesis]]:
    """Hypotheses of each sentence, best first: sampled, greedy or by beam search.

    Raises:
        ModelError: The model gives no finite log-probabilities.
    """
    if batch.shortlist is None:
        return run_search(model, batch, _search_of(config, batch))
    # The search counts in indices of the shortlist; PAD, BOS, EOS and UNK are the same on both sides.
    subwords = batch.shortlist.tolist()
    index_of = {subword: index for index, subword in enumerate(subwords)}
    prefixes, phrases = batch.prefixes, batch.bonus_phrases
    if prefixes is not None:
        prefixes = [[index_of[subword] for subword in prefix] for prefix in prefixes]
    if phrases is not None:
        phrases = [[phrase.renumbered(index_of) for phrase in of_sentence] for of_sentence in phrases]
    batch = replace(batch, prefixes=prefixes, bonus_phrases=phrases)
    return [
        [replace(hypothesis, ids=tuple(subwords[index] for index in hypothesis.ids)) for hypothesis in best]
        for best in run_search(model, batch, _search_of(config, batch))
    ]


def require_finite(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """The hypotheses of a sentence, if there is one and all scores are finite."""
    if hypotheses and all(math.isfinite(hypothesis.score) for hypothesis in hypotheses):
        return hypotheses
    raise ModelError(
        "the model produced NaN or infinite log-probabilities",
        "its weights are damaged or it diverged in training",
    )


def _search_of(config: DecodingConfig, batch: Batch) -> Search:
    if config.sampling is not None:
        return SamplingSearch(config, replace(batch, bonus_phrases=None))
    constraints = Constraints(config, batch)
    return GreedySearch(config, constraints) if config.beam == 1 else BeamSearch(config, constraints)


@torch.inference_mode()
def run_search(model: StepModel, batch: Batch, search: Search) -> list[list[Hypothesis]]:
    """The hypotheses that a search finds for each sentence of a batch, best first."""
    tokens, state = batch.start(model)
    if search.first_width > 1:
        state, tokens = state.expand(search.width), tokens.repeat_interleave(search.width)
    while True:
        if batch.stop is not None and batch.stop.is_set():
            raise Cancelled
        state = search.take_step(model, tokens, state)
        ended = search.read_ended()
        if all(ended):
            search.collect(range(len(ended)))
            return search.results
        if search.step == 1 and search.first_width < search.width:
            state = state.expand(search.width)
        leaving, staying = batch_compaction(ended)
        if leaving:
            search.collect(leaving)
            sentences = torch.tensor(staying, device=tokens.device)
            state = state.keep(sentences)
            search.keep(sentences)
        rows = search.parent_rows()
        if rows is not None:
            state = state.reorder(rows)
            search.reorder(rows)
        tokens = search.next_tokens()
        if batch.shortlist is not None:
            tokens = batch.shortlist[tokens]


class Constraints:
    """Which subwords may continue the hypotheses of a batch of sentences.

    In order of force: a target prefix, the longest output (then only EOS is left), the shortest output,
    no repeated n-gram; PAD and BOS never occur, UNK only with an `unknown_penalty` or in a prefix.
    """

    def __init__(self, config: DecodingConfig, batch: Batch) -> None:
        device, limits, prefixes = batch.source.device, batch.limits, batch.prefixes
        context_ids, phrases = batch.context_ids, batch.bonus_phrases
        self._preferred = None
        if phrases is not None and any(phrases):
            self._preferred = PreferredPhrases(phrases, device)
        self._prefixes = None
        if prefixes is not None and any(prefixes):
            limits = [max(limit, len(prefix)) for limit, prefix in zip(limits, prefixes, strict=True)]
            self._prefixes = pad_batch(prefixes, device)
        self.pieces = sys.maxsize if batch.pieces is None else batch.pieces
        forbidden = [PAD, BOS] if config.unknown_penalty is not None else [PAD, BOS, UNK]
        self.forbidden = torch.tensor(forbidden, device=device)
        self._unknown_penalty = config.unknown_penalty or 0.0
        self._ngram = config.no_repeat_ngram
        self._shortest_limit, self.longest = min(limits), max(limits)
        self.limits = torch.tensor(limits, device=device)
        missing = [config.min_length - len(each) for each in context_ids or ([],) * len(limits)]
        self._most_missing = max(missing, default=0)
        self._missing = torch.tensor(missing, device=device)
        self._context: Tensor | None = None
        if context_ids is not None and self._ngram:
            # Padded in front, so that the ends stand beside what follows.
            self._context = pad_batch([each[::-1] for each in context_ids], device).flip(1)

    def free_until(self, step: int) -> int:
        """How long the hypotheses can be before more than `forbidden` holds of what follows them."""
        held = step < self._most_missing or (self._prefixes is not None and step < self._prefixes.size(1))
        held = held or self._preferred is not None or bool(self._ngram) or len(self.forbidden) < 3
        return step if held else self._shortest_limit

    def reachable(self, sums: Numbers) -> Numbers:
        """Summed log-probabilities `[N]` with what preferred phrases can still add to them."""
        return sums if self._preferred is None else sums + self._preferred.most.cpu().numpy()

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay."""
        self.limits = self.limits.index_select(0, sentences)
        self._missing = self._missing.index_select(0, sentences)
        if self._preferred is not None:
            self._preferred.keep(sentences)
        if self._prefixes is not None:
            self._prefixes = self._prefixes.index_select(0, sentences)
        if self._context is not None:
            self._context = self._context.index_select(0, sentences)

    def apply(self, log_probs: Tensor, step: int, read_so_far: Callable[[int], Tensor]) -> Tensor:
        """Set what may not follow to -inf, in place.

        Args:
            log_probs: `[N, W, V]`, changed and returned.
            step: Subwords of each hypothesis so far.
            read_so_far: Gives these, `[N, W, step]`, for a width W.
        """
        if self.pieces < log_probs.size(2):
            log_probs[:, :, self.pieces :] = IMPOSSIBLE
        if self._preferred is not None:
            self._preferred.add(log_probs, read_so_far(log_probs.size(1)))
        forced = None
        if self._prefixes is not None and step < self._prefixes.size(1):
            # `[N, W, 1]`; PAD where a sentence is free.
            forced = self._prefixes[:, step].view(-1, 1, 1).expand(-1, log_probs.size(1), 1)
            original = log_probs.gather(2, forced).masked_fill(forced == PAD, IMPOSSIBLE)
        log_probs.index_fill_(2, self.forbidden, IMPOSSIBLE)
        if self._unknown_penalty:
            log_probs[:, :, UNK] -= self._unknown_penalty
        if self._ngram:
            self._forbid_repeats(log_probs, read_so_far(log_probs.size(1)))
        if step < self._most_missing:
            _forbid_end(log_probs, (self._missing > step) & (self.limits > step))
        if step >= self._shortest_limit:
            _only_end(log_probs, self.limits <= step)
        if forced is not None:
            log_probs.masked_fill_(forced != PAD, IMPOSSIBLE)
            log_probs.scatter_reduce_(2, forced, original, "amax")
        return log_probs

    def _forbid_repeats(self, log_probs: Tensor, history: Tensor) -> None:
        """Forbid each subword that would complete an n-gram which is there already."""
        n = self._ngram
        if self._context is not None:
            history = torch.cat((self._context.unsqueeze(1).expand(-1, history.size(1), -1), history), 2)
        start = history.size(2) - (n - 1)
        if start < 1:
            return
        windows = history.unfold(2, n, 1)
        repeats = (windows[..., : n - 1] == history[:, :, start:].unsqueeze(2)).all(3)
        # In front of a short prompt there is nothing, which is no n-gram.
        repeats = repeats & (windows[..., 0] != PAD)
        penalty = torch.zeros(repeats.shape, device=log_probs.device).masked_fill_(repeats, IMPOSSIBLE)
        log_probs.scatter_add_(2, windows[..., n - 1], penalty)


def _forbid_end(log_probs: Tensor, sentences: Tensor) -> None:
    """Forbid EOS in these sentences (`[N]` bool), except where nothing else is left."""
    end = log_probs[:, :, EOS].clone()
    log_probs[:, :, EOS] = IMPOSSIBLE
    open_ = (log_probs.amax(2) == IMPOSSIBLE) | ~sentences.unsqueeze(1)
    log_probs[:, :, EOS] = torch.where(open_, end, IMPOSSIBLE)


def _only_end(log_probs: Tensor, sentences: Tensor) -> None:
    """Forbid everything but EOS in these sentences (`[N]` bool)."""
    end = log_probs[:, :, EOS].clone()
    log_probs.masked_fill_(sentences.view(-1, 1, 1), IMPOSSIBLE)
    log_probs[:, :, EOS] = end


def top_k(values: Tensor, k: int, added: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The `k` largest values of each row, largest first, and their columns.

    With `added` `[N, W]` each W rows are one, `[N, W V]`, and each gets a number of its own added first.
    `Tensor.topk` takes a CPU two to five times as long as functions in C.

    Shape:
        values `[rows, V]` -> two tensors `[rows, k]`, or `[N, k]`.
    """
    rows = values.size(0) if added is None else added.size(0)
    plain = values.device.type == "cpu" and values.dtype == torch.float32 and values.is_contiguous()
    if plain and (compiled := library()) is not None:
        best, index = values.new_empty(rows, k), values.new_empty(rows, k, dtype=torch.int64)
        more = None if added is None else added.contiguous()
        sizes = rows, values.size(0) // rows, values.size(1), k
        place = None if more is None else more.data_ptr()
        compiled.top_k(values.data_ptr(), place, *sizes, best.data_ptr(), index.data_ptr())
        return best, index
    if added is not None:
        values = (values + added.to(values.device).reshape(-1, 1)).view(rows, -1)
    return values.topk(k, dim=1)


class Search:
    """The open hypotheses of a batch, and the results of sentences that have left it.

    Each sentence has `width` hypotheses; the first step continues `first_width` of them, `width` or 1.
    """

    def __init__(
        self, config: DecodingConfig, constraints: Constraints, width: int, first_width: int
    ) -> None:
        sentences, device = constraints.limits.numel(), constraints.limits.device
        self.config, self.constraints = config, constraints
        self.width, self.first_width = width, first_width
        self.results: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self.numbers = list(range(sentences))
        """Which sentences of the results are still in the batch."""
        self.step = 0
        self.sums = torch.zeros(sentences, first_width, device=device)
        self.tokens = torch.empty(sentences, width, dtype=torch.int64, device=device)
        steps = constraints.longest + 1
        self.history = torch.full((sentences, width, steps), PAD, dtype=torch.int64, device=device)

    def read_so_far(self, width: int) -> Tensor:
        """The subwords of the first hypotheses of each sentence, `[N, width, step]`, where the model is."""
        return self.history[:, :width, : self.step].to(self.constraints.limits.device)

    def take_step(self, model: StepModel, tokens: Tensor, state: Any) -> Any:
        """Let the model read the last subwords, and continue every hypothesis; the next state."""
        log_probs, state = model.step(tokens, state)
        self.advance(log_probs)
        return state

    def advance(self, log_probs: Tensor) -> None:
        """Continue every hypothesis by one subword; `log_probs` is `[N * W, V]`."""
        raise NotImplementedError

    def read_ended(self) -> list[bool]:
        """Which sentences have ended; the one synchronisation of a step with the device."""
        raise NotImplementedError

    def parent_rows(self) -> Tensor | None:
        """For each row `[N * width]` the one that it continues; None: each continues itself."""
        return None

    def reorder(self, rows: Tensor) -> None:
        """New hypothesis i continues old hypothesis `rows[i]`."""
        self.history = self.history.flatten(0, 1).index_select(0, rows).view(self.history.shape)

    def next_tokens(self) -> Tensor:
        """The chosen subwords, `[N * width]`, which are added to the hypotheses."""
        self.history[:, :, self.step - 1] = self.tokens
        return self.tokens.reshape(-1)

    def hypotheses_of(self, sentences: Tensor) -> list[list[Hypothesis]]:
        """Hypotheses of these sentences of the batch, best first."""
        raise NotImplementedError

    def collect(self, rows: Sequence[int]) -> None:
        """Move the hypotheses of these sentences of the batch to the results."""
        found = self.hypotheses_of(torch.tensor(list(rows), device=self.sums.device))
        for row, hypotheses in zip(rows, found, strict=True):
            self.results[self.numbers[row]] = require_finite(hypotheses)

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay in the batch."""
        self.numbers = [self.numbers[row] for row in sentences.tolist()]
        self.constraints.keep(sentences)
        sentences = sentences.to(self.sums.device)
        self.sums = self.sums.index_select(0, sentences)
        self.tokens = self.tokens.index_select(0, sentences)
        self.history = self.history.index_select(0, sentences)


class GreedySearch(Search):
    """Takes the most probable subword at every step; a row that has ended goes on with PAD."""

    def __init__(self, config: DecodingConfig, constraints: Constraints, width: int = 1) -> None:
        super().__init__(config, constraints, width, width)
        self._open = torch.ones_like(self.sums, dtype=torch.bool)

    def choose(self, log_probs: Tensor) -> Tensor:
        """A subword for each row of `log_probs` `[rows, V]`: `[rows]`."""
        return top_k(log_probs, 1)[1].squeeze(1)

    def advance(self, log_probs: Tensor) -> None:
        """Continue the open rows."""
        log_probs = log_probs.view(*self.sums.shape, -1)
        log_probs = self.constraints.apply(log_probs, self.step, self.read_so_far).flatten(0, 1)
        chosen, closed = self.choose(log_probs), ~self._open
        values = log_probs.gather(1, chosen.unsqueeze(1)).view_as(self.sums)
        self.sums = self.sums + values.masked_fill(closed, 0.0)
        self.tokens = chosen.view_as(self.sums).masked_fill(closed, PAD)
        self._open = self._open & (self.tokens != EOS)
        self.step += 1

    def read_ended(self) -> list[bool]:
        """Which sentences have no open row, or no room for another subword."""
        if self.step > self.constraints.longest:
            return [True] * len(self.numbers)
        flags: list[bool] = (~self._open.any(1)).tolist()
        return flags

    def hypotheses_of(self, sentences: Tensor) -> list[list[Hypothesis]]:
        """The translations of all rows."""
        self.history[:, :, self.step - 1] = self.tokens  # the last ones
        sums = self.sums.index_select(0, sentences).tolist()
        histories = self.history.index_select(0, sentences).tolist()
        found = []
        for totals, rows in zip(sums, histories, strict=True):
            hypotheses = []
            for total, ids in zip(totals, rows, strict=True):
                length = ids.index(EOS) if EOS in ids else len(ids)
                score = total / self.config.length_divisor(length + 1)
                hypotheses.append(Hypothesis(tuple(ids[:length]), total, score))
            found.append(sorted(hypotheses, key=lambda hypothesis: -hypothesis.score))
        return found

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay in the batch."""
        super().keep(sentences)
        self._open = self._open.index_select(0, sentences)


class SamplingSearch(GreedySearch):
    """Draws `config.width` translations of each sentence at random; some may be equal.

    The seed and the number of a sentence in `batch.draws` determine its random numbers, so that a translation
    does not depend on the batch. A subword is drawn by inverting the distribution function at one of them.
    """

    def __init__(self, config: DecodingConfig, batch: Batch) -> None:
        super().__init__(config, Constraints(config, batch), config.width)
        assert config.sampling is not None
        self._sampling = config.sampling
        lengths = [int(limit) + 1 for limit in self.constraints.limits.tolist()]
        uniform = _uniform_numbers(self._sampling.seed, batch.draws, self.width, lengths)
        self._uniform = uniform.to(batch.source.device)

    def choose(self, log_probs: Tensor) -> Tensor:
        """A subword for each row of `log_probs` `[rows, V]`: `[rows]`."""
        sampling, columns = self._sampling, None
        if sampling.top_k:
            log_probs, columns = top_k(log_probs, min(sampling.top_k, log_probs.size(1)))
        elif sampling.top_p < 1.0:
            log_probs, columns = log_probs.sort(dim=1, descending=True, stable=True)
        probabilities = torch.softmax(log_probs.double() / sampling.temperature, dim=1)
        if sampling.top_p < 1.0:
            before = probabilities.cumsum(1) - probabilities
            probabilities = probabilities.masked_fill(before >= sampling.top_p, 0.0)
        if sampling.epsilon:
            # The likeliest stays in any case.
            least = probabilities.amax(1, keepdim=True).clamp(max=sampling.epsilon)
            probabilities = probabilities.masked_fill(probabilities < least, 0.0)
        cumulative = probabilities.cumsum(1)
        threshold = cumulative[:, -1:] * self._uniform[:, :, self.step].reshape(-1, 1)
        index = torch.searchsorted(cumulative, threshold, right=True).clamp_(max=log_probs.size(1) - 1)
        return (index if columns is None else columns.gather(1, index)).squeeze(1)

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay in the batch."""
        super().keep(sentences)
        self._uniform = self._uniform.index_select(0, sentences)


def _uniform_numbers(seed: int, numbers: Sequence[int], samples: int, lengths: Sequence[int]) -> Tensor:
    """Uniform numbers in [0, 1) per sentence, sample and step: `[N, samples, longest]`, float64."""
    uniform = np.zeros((len(numbers), samples, max(lengths)))
    for row, (number, length) in enumerate(zip(numbers, lengths, strict=True)):
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))
        # 24 bits each: times a float64 sum they stay below it, so the search in the sums stays inside.
        uniform[row, :, :length] = generator.random((samples, length), dtype=np.float32)
    return torch.from_numpy(uniform)


class BeamSearch(Search):
    """Keeps the best hypotheses of each sentence open, and its best finished ones.

    Each step ranks all continuations of the open hypotheses of a sentence by log-probability (they are
    equally long) and looks at the best `2 * beam`. Those that end with EOS and stand among the first `beam`
    are finished, other ends are dropped; the first `beam` that go on stay open. The rule `optimal` goes on
    until no open hypothesis can enter the n-best list, since a log-probability only falls; `first` also stops
    a sentence at its `beam`-th finished hypothesis, as fairseq does. Finished hypotheses are ranked by score.
    """

    def __init__(self, config: DecodingConfig, constraints: Constraints, beam: int | None = None) -> None:
        super().__init__(config, constraints, config.beam if beam is None else beam, 1)
        self._device, steps = self.sums.device, constraints.longest + 1
        # Numbers of the few candidates are calculated with on the host, where that takes the least time.
        self.sums, self.tokens, self.history = (each.cpu() for each in (self.sums, self.tokens, self.history))
        self._limits = constraints.limits.cpu().numpy()
        divisors = [config.length_divisor(length) for length in range(1, steps + 2)]
        self.divisors = np.array(divisors, dtype=np.float32)
        self._last_divisors = self.divisors[self._limits]
        self._sentences = np.arange(len(self.results))[:, None]
        self.finished = FinishedHypotheses(len(self.results), self.width, config.n_best, steps, config.stop)
        self.parents = np.empty((len(self.results), 0), dtype=np.int64)
        """`[N, beam]`: which hypothesis of its sentence each continues."""
        self._places = np.arange(self.width)

    def take_step(self, model: StepModel, tokens: Tensor, state: Any) -> Any:
        """See the base class; several steps at once where no hypothesis ends and nothing else is asked."""
        steps = self.constraints.free_until(self.step) - self.step
        on_gpu = self._device.type != "cpu"
        if not isinstance(model, CapturedModel) or on_gpu or not self.step or steps < 1:
            return super().take_step(model, tokens, state)
        size = len(self.sums), 2 * self.width
        best, index = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.int64)
        self.sums = self.sums.contiguous()
        beam = BeamSteps(
            sentences=size[0],
            width=self.width,
            pieces=self.constraints.pieces,
            end=EOS,
            forbidden=self.constraints.forbidden,
            sums=self.sums,
            history=self.history,
            divisors=self.divisors,
            last=self._last_divisors,
            worst=np.ascontiguousarray(self.finished.scores[:, -1]),
            best=best,
            index=index,
            step=self.step,
            room=self.history.size(2),
            steps=steps,
        )
        log_probs, state = model.step(tokens, state, beam)
        if beam.taken is None:
            self.advance(log_probs)
        else:
            self.step += beam.taken
            self._continue(best, *np.divmod(index, log_probs.size(1)))
        return state

    def advance(self, log_probs: Tensor) -> None:
        """Continue every hypothesis by one subword; `log_probs` is `[N * W, V]`, W = 1 at first."""
        sentences, width = self.sums.shape
        log_probs = log_probs.view(sentences, width, -1)
        log_probs = self.constraints.apply(log_probs, self.step, self.read_so_far)
        self._continue(*self._candidates(log_probs))

    def _continue(self, sums: Numbers, parents: Numbers, tokens: Numbers) -> None:
        """Which of the best `2 * beam` continuations end, and which stay open."""
        ends = tokens == EOS
        if ends.any():
            self._finish(ends, sums, parents)
            # Sorting the flags alone (stable, False first) lists the open candidates in their order of rank.
            order = self._sentences, ends.argsort(axis=1, kind="stable")
            tokens, parents = tokens[order], parents[order]
            sums = np.where(ends[order], np.float32(IMPOSSIBLE), sums[order])
        sums, self.parents = sums[:, : self.width], parents[:, : self.width]
        self.tokens, self.sums = torch.from_numpy(tokens[:, : self.width]), torch.from_numpy(sums)
        self.step += 1
        # The best penalty that an open hypothesis of each sentence can still get.
        divisors = np.maximum(self._last_divisors, self.divisors[self.step])
        self.finished.close(self.constraints.reachable(sums[:, 0]), divisors)

    def _candidates(self, log_probs: Tensor) -> tuple[Numbers, Numbers, Numbers]:
        """The best `2 * beam` continuations of each sentence: summed log-probability, parent, token.

        A parent is the index, within the beam, of the hypothesis that is continued. NaN comes first and ends
        the sentence.
        """
        sentences, width, columns = log_probs.shape
        count = min(2 * self.width, width * columns)
        found = top_k(log_probs.view(sentences * width, columns), count, self.sums)
        sums, index = (each.cpu().numpy() for each in found)
        if count < 2 * self.width:
            missing = (0, 0), (0, 2 * self.width - count)
            sums, index = np.pad(sums, missing, constant_values=IMPOSSIBLE), np.pad(index, missing)
        parents, tokens = np.divmod(index, columns)
        return sums, parents, tokens

    def _finish(self, ends: Numbers, sums: Numbers, parents: Numbers) -> None:
        first = np.s_[:, : self.width]
        history = self.history.numpy()[self._sentences, parents[first], : self.step]
        ends = ends[first] & (sums[first] > IMPOSSIBLE)
        self.finished.add(ends, sums[first], self.divisors[self.step], history)

    def read_ended(self) -> list[bool]:
        """Which sentences have ended."""
        ended: list[bool] = self.finished.ended.tolist()
        return ended

    def parent_rows(self) -> Tensor | None:
        """For each row `[N * beam]` of the state, the row of the hypothesis that it continues."""
        if self.step == 1 or (self.parents == self._places).all():
            return None
        rows = (self._sentences * self.width + self.parents).reshape(-1)
        return torch.from_numpy(rows).to(self._device)

    def reorder(self, rows: Tensor) -> None:  # noqa: ARG002 - the parents are here
        """New hypothesis i continues its parent."""
        self.history = torch.from_numpy(self.history.numpy()[self._sentences, self.parents])

    def next_tokens(self) -> Tensor:
        """The chosen subwords, `[N * width]`, which are added to the hypotheses."""
        return super().next_tokens().to(self._device)

    def hypotheses_of(self, sentences: Tensor) -> list[list[Hypothesis]]:
        """The finished hypotheses."""
        return self.finished.listed(sentences.cpu().numpy())

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay in the batch."""
        super().keep(sentences)
        here = sentences.cpu().numpy()
        self.finished.keep(here)
        self.parents, self._limits = self.parents[here], self._limits[here]
        self._last_divisors = self._last_divisors[here]
        self._sentences = self._sentences[: len(here)]


class FinishedHypotheses:
    """The best finished hypotheses of every sentence in a batch, and which sentences need no further step.

    `sentences` rows of `n_best` places, best first; empty: -inf.

    Args:
        sentences: Sentences in the batch.
        beam: Hypotheses that end a sentence under the rule `first`.
        n_best: Places.
        steps: Most subwords of a hypothesis, EOS counted.
        rule: When a sentence has ended.
    """

    def __init__(self, sentences: int, beam: int, n_best: int, steps: int, rule: StopRule) -> None:
        self.beam, self.rule = beam, rule
        self.scores = np.full((sentences, n_best), IMPOSSIBLE, dtype=np.float32)
        self.log_probabilities = self.scores.copy()
        self.tokens = np.full((sentences, n_best, steps), EOS)
        self.counts = np.zeros(sentences, dtype=np.int64)
        self.ended = np.zeros(sentences, dtype=np.bool_)

    def add(
        self, ends: Numbers, log_probabilities: Numbers, divisor: float | Numbers, history: Numbers
    ) -> None:
        """Take in the hypotheses that end in this step.

        Under the rule `first` only the first `beam` of a sentence count; those of one step in order of rank.

        Args:
            ends: `[N, k]` bool, which of the candidates end here, best first.
            log_probabilities: `[N, k]`, EOS included.
            divisor: The length penalty of this step, perhaps `[N, 1]`.
            history: `[N, k, t]` their subwords without EOS.
        """
        ends = ends & ~self.ended[:, None]
        if self.rule == "first":
            ends = ends & (self.counts[:, None] + ends.cumsum(1) <= self.beam)
        self.counts = self.counts + ends.sum(1)
        scores = np.where(ends, log_probabilities / divisor, np.float32(IMPOSSIBLE))
        n_best = self.scores.shape[1]
        # Stable: of two equal scores the earlier one stays ahead, whatever the batch.
        merged = np.concatenate([self.scores, scores], 1)
        best = np.arange(len(merged))[:, None], (-merged).argsort(axis=1, kind="stable")[:, :n_best]
        self.scores = merged[best]
        self.log_probabilities = np.concatenate([self.log_probabilities, log_probabilities], 1)[best]
        padded = np.full((*history.shape[:2], self.tokens.shape[2]), EOS)
        padded[:, :, : history.shape[2]] = history
        self.tokens = np.concatenate([self.tokens, padded], 1)[best]

    def close(self, best_open: Numbers, divisors: Numbers) -> None:
        """Find out which sentences have ended.

        Args:
            best_open: `[N]` log-probability of the best open hypothesis, -inf when there is none.
            divisors: `[N]`, the best penalty that an open hypothesis can still get.
        """
        # A log-probability can only fall, so no continuation scores better than this bound: then the n-best
        # list is what it will be under either rule. NaN exceeds nothing, and so ends a sentence.
        self.ended |= ~(best_open / divisors > self.scores[:, -1])
        if self.rule == "first":
            self.ended |= self.counts >= self.beam

    def keep(self, sentences: Numbers) -> None:
        """Only these sentences stay."""
        self.scores, self.log_probabilities = self.scores[sentences], self.log_probabilities[sentences]
        self.tokens, self.counts = self.tokens[sentences], self.counts[sentences]
        self.ended = self.ended[sentences]

    def listed(self, sentences: Numbers) -> list[list[Hypothesis]]:
        """The finished hypotheses of these sentences, best first; perhaps none."""
        parts = self.scores, self.log_probabilities, self.tokens
        return [
            [
                Hypothesis(tuple(ids[: ids.index(EOS)]), total, score)
                for score, total, ids in zip(*row, strict=True)
                if score > IMPOSSIBLE
            ]
            for row in zip(*(part[sentences].tolist() for part in parts), strict=True)
        ]
