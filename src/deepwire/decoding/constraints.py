"""Which subwords a hypothesis may continue with: special symbols, lengths, n-grams, target prefixes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS, PAD, UNK
from deepwire.decoding.batching import padded
from deepwire.decoding.config import DecodingConfig

_NEVER = -torch.inf


class Constraints:
    """The constraints of a batch of sentences.

    In order of force: a target prefix, the longest output (then only EOS is left), the shortest output,
    no repeated n-gram; PAD and BOS never occur, UNK only with an `unknown_penalty` or in a prefix.

    Args:
        limits: Most subwords of each sentence, EOS not counted.
        prefixes: Subwords that each translation begins with, or None.
    """

    def __init__(
        self,
        config: DecodingConfig,
        limits: Sequence[int],
        prefixes: Sequence[Sequence[int]] | None,
        device: torch.device,
    ) -> None:
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
        self._prefixes = None if prefixes is None else padded(prefixes, device)

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay."""
        self.limits = self.limits.index_select(0, sentences)
        if self._prefixes is not None:
            self._prefixes = self._prefixes.index_select(0, sentences)

    def apply(self, log_probs: Tensor, history: Tensor) -> Tensor:
        """Set what may not follow to -inf, in place.

        Args:
            log_probs: `[N, W, V]`, changed and returned.
            history: `[N, W, t]` the subwords of each hypothesis so far.
        """
        step = history.size(2)
        forced = self._forced(log_probs, step)
        log_probs.index_fill_(2, self._forbidden, _NEVER)
        if self._unknown_penalty:
            log_probs[:, :, UNK] -= self._unknown_penalty
        if self._ngram and step >= self._ngram:
            _forbid_repeats(log_probs, history, self._ngram)
        if step < self._shortest:
            _forbid_end(log_probs)
        if step >= self._next_limit:
            _only_end(log_probs, self.limits <= step)
        if forced is not None:
            wanted, original = forced
            log_probs.masked_fill_(wanted != PAD, _NEVER)
            log_probs.scatter_reduce_(2, wanted, original, "amax")
        return log_probs

    def _forced(self, log_probs: Tensor, step: int) -> tuple[Tensor, Tensor] | None:
        """The prefix token of each sentence at `step` `[N, W, 1]` (PAD = free) and its log-probability."""
        if self._prefixes is None or step >= self._prefixes.size(1):
            return None
        wanted = self._prefixes[:, step].view(-1, 1, 1).expand(-1, log_probs.size(1), 1)
        original = log_probs.gather(2, wanted)
        return wanted, original.masked_fill(wanted == PAD, _NEVER)


def _forbid_repeats(log_probs: Tensor, history: Tensor, n: int) -> None:
    """Forbid each subword that would complete an n-gram which `history` already holds."""
    windows = history.unfold(2, n, 1)
    start = history.size(2) - (n - 1)
    repeats = (windows[..., : n - 1] == history[:, :, start:].unsqueeze(2)).all(3)
    penalty = torch.zeros(repeats.shape, device=log_probs.device).masked_fill_(repeats, _NEVER)
    log_probs.scatter_add_(2, windows[..., n - 1], penalty)


def _forbid_end(log_probs: Tensor) -> None:
    """Forbid EOS, except where nothing else is left."""
    end = log_probs[:, :, EOS].clone()
    log_probs[:, :, EOS] = _NEVER
    nothing_left = log_probs.amax(2) == _NEVER
    log_probs[:, :, EOS] = torch.where(nothing_left, end, _NEVER)


def _only_end(log_probs: Tensor, sentences: Tensor) -> None:
    """Forbid everything but EOS in these sentences (`[N]` bool)."""
    end = log_probs[:, :, EOS].clone()
    log_probs.masked_fill_(sentences.view(-1, 1, 1), _NEVER)
    log_probs[:, :, EOS] = end
