"""Hypotheses: how they are scored, which subwords may continue them, and the best of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS, PAD, UNK
from deepwire.decoding.decoding_config import DecodingConfig, LengthPenaltyForm
from deepwire.decoding.model_inputs import pad_batch
from deepwire.decoding.preferred_phrases import PreferredPhrases
from deepwire.decoding.required_phrases import Phrase
from deepwire.errors import ModelError

IMPOSSIBLE = -torch.inf
_CHUNK = 64
_MIN_CHUNKED_ROW = 2048


@dataclass(frozen=True)
class Hypothesis:
    """One translation in subword ids."""

    ids: tuple[int, ...]
    """Without BOS and EOS."""
    log_probability: float
    """Natural logarithm, summed over the subwords and EOS; an unknown penalty, if set, is in it."""
    score: float
    """`log_probability` under the length penalty; what hypotheses are ranked by."""


def require_finite(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """The hypotheses of a sentence, if there is one and all scores are finite.

    Raises:
        ModelError: Otherwise.
    """
    if hypotheses and all(math.isfinite(hypothesis.score) for hypothesis in hypotheses):
        return hypotheses
    raise ModelError(
        "the model gives no finite probabilities", "its weights are damaged or it diverged in training"
    )


@dataclass(frozen=True)
class LengthPenalty:
    """The divisor that makes log-probabilities of different lengths comparable.

    `gnmt`: ((5 + len) / 6)^a, Wu et al. 2016, eq. 14; `average`: len^a. EOS counts in `len`.
    """

    exponent: float
    form: LengthPenaltyForm

    @classmethod
    def of(cls, config: DecodingConfig) -> LengthPenalty:
        """The penalty that `config` asks for."""
        return cls(config.length_penalty, config.length_penalty_form)

    def divisor(self, length: int) -> float:
        """The penalty of `length` subwords, EOS counted."""
        base = (5.0 + length) / 6.0 if self.form == "gnmt" else float(length)
        return float(base**self.exponent)


class Constraints:
    """Which subwords may continue the hypotheses of a batch of sentences.

    In order of force: a target prefix, the longest output (then only EOS is left), the shortest output,
    no repeated n-gram; PAD and BOS never occur, UNK only with an `unknown_penalty` or in a prefix.

    Args:
        limits: Most subwords of each sentence, EOS not counted.
        prefixes: Subwords that each translation begins with, or None.
        before: Subwords that the model has read before each, or None. They count in the shortest output,
            and no n-gram of theirs is repeated.
        preferred: Phrases of each that are preferred, or None.
    """

    def __init__(
        self,
        config: DecodingConfig,
        limits: Sequence[int],
        prefixes: Sequence[Sequence[int]] | None,
        device: torch.device,
        before: Sequence[Sequence[int]] | None = None,
        preferred: Sequence[Sequence[Phrase]] | None = None,
    ) -> None:
        self._preferred = None
        if preferred is not None and any(preferred):
            self._preferred = PreferredPhrases(preferred, device)
        prefixes = prefixes if prefixes is not None and any(prefixes) else None
        if prefixes is not None:
            limits = [max(limit, len(prefix)) for limit, prefix in zip(limits, prefixes, strict=True)]
        forbidden = [PAD, BOS] if config.unknown_penalty is not None else [PAD, BOS, UNK]
        self._forbidden = torch.tensor(forbidden, device=device)
        self._unknown_penalty = config.unknown_penalty or 0.0
        self._shortest, self._ngram = config.min_length, config.no_repeat_ngram
        self._next_limit = min(limits)
        self.longest = max(limits)
        self.limits = torch.tensor(limits, device=device)
        self._prefixes = None if prefixes is None else pad_batch(prefixes, device)
        missing = [self._shortest - len(each) for each in before or ([],) * len(limits)]
        self._shortest = max(missing, default=0)
        self._missing = torch.tensor(missing, device=device)
        self._before: Tensor | None = None
        if before is not None and self._ngram:
            # Padded in front, so that the ends stand beside what follows.
            self._before = pad_batch([each[::-1] for each in before], device).flip(1)

    def reachable(self, sums: Tensor) -> Tensor:
        """Summed log-probabilities `[N]` with what preferred phrases can still add to them."""
        return sums if self._preferred is None else sums + self._preferred.most

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay."""
        self.limits = self.limits.index_select(0, sentences)
        self._missing = self._missing.index_select(0, sentences)
        if self._preferred is not None:
            self._preferred.keep(sentences)
        if self._prefixes is not None:
            self._prefixes = self._prefixes.index_select(0, sentences)
        if self._before is not None:
            self._before = self._before.index_select(0, sentences)

    def apply(self, log_probs: Tensor, history: Tensor) -> Tensor:
        """Set what may not follow to -inf, in place.

        Args:
            log_probs: `[N, W, V]`, changed and returned.
            history: `[N, W, t]` the subwords of each hypothesis so far.
        """
        step = history.size(2)
        if self._preferred is not None:
            self._preferred.add(log_probs, history)
        forced = self._forced(log_probs, step)
        log_probs.index_fill_(2, self._forbidden, IMPOSSIBLE)
        if self._unknown_penalty:
            log_probs[:, :, UNK] -= self._unknown_penalty
        if self._ngram:
            self._forbid_repeats(log_probs, history)
        if step < self._shortest:
            _forbid_end(log_probs, (self._missing > step) & (self.limits > step))
        if step >= self._next_limit:
            _only_end(log_probs, self.limits <= step)
        if forced is not None:
            tokens, original = forced
            log_probs.masked_fill_(tokens != PAD, IMPOSSIBLE)
            log_probs.scatter_reduce_(2, tokens, original, "amax")
        return log_probs

    def _forbid_repeats(self, log_probs: Tensor, history: Tensor) -> None:
        """Forbid each subword that would complete an n-gram which is there already."""
        n = self._ngram
        if self._before is not None:
            history = torch.cat((self._before.unsqueeze(1).expand(-1, history.size(1), -1), history), 2)
        start = history.size(2) - (n - 1)
        if start < 1:
            return
        windows = history.unfold(2, n, 1)
        repeats = (windows[..., : n - 1] == history[:, :, start:].unsqueeze(2)).all(3)
        # In front of a short prompt there is nothing, which is no n-gram.
        repeats = repeats & (windows[..., 0] != PAD)
        penalty = torch.zeros(repeats.shape, device=log_probs.device).masked_fill_(repeats, IMPOSSIBLE)
        log_probs.scatter_add_(2, windows[..., n - 1], penalty)

    def _forced(self, log_probs: Tensor, step: int) -> tuple[Tensor, Tensor] | None:
        """The prefix token of each sentence at `step` `[N, W, 1]` (PAD = free) and its log-probability."""
        if self._prefixes is None or step >= self._prefixes.size(1):
            return None
        tokens = self._prefixes[:, step].view(-1, 1, 1).expand(-1, log_probs.size(1), 1)
        original = log_probs.gather(2, tokens)
        return tokens, original.masked_fill(tokens == PAD, IMPOSSIBLE)


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


def chunked_top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` largest values of each row, largest first, and their columns; `Tensor.topk` for long rows.

    The k largest lie in the k chunks with the largest maxima, so long rows are read once by `amax` and
    only those chunks are sorted: on a CPU two to five times as fast as `topk` over a whole row of 10,000
    to 32,000 columns, and faster than `max` with indices.

    Shape:
        values `[rows, V]` -> two tensors `[rows, k]`.
    """
    rows, columns = values.shape
    chunks = columns // _CHUNK
    if columns < _MIN_CHUNKED_ROW or k >= chunks or values.device.type != "cpu":
        return values.topk(k, dim=1)
    body = values[:, : chunks * _CHUNK].view(rows, chunks, _CHUNK)
    best_chunks = body.amax(dim=2).topk(k, dim=1).indices
    offsets = torch.arange(_CHUNK, device=values.device)
    index = (best_chunks.unsqueeze(2) * _CHUNK + offsets).view(rows, k * _CHUNK)
    candidates = body.gather(1, best_chunks.unsqueeze(2).expand(-1, -1, _CHUNK)).view(rows, k * _CHUNK)
    if chunks * _CHUNK < columns:
        rest = torch.arange(chunks * _CHUNK, columns, device=values.device)
        candidates = torch.cat([candidates, values[:, chunks * _CHUNK :]], dim=1)
        index = torch.cat([index, rest.expand(rows, -1)], dim=1)
    best, position = candidates.topk(k, dim=1)
    return best, index.gather(1, position)
