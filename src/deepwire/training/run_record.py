"""What a run decided at its start and keeps for its whole life, in ``env.json``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from deepwire.checkpoint.files import read_json
from deepwire.training.job import Job
from deepwire.training.precision import Numerics
from deepwire.training.resume import require_same_digests

# Padded tokens of one forward pass that keep the device busy and its memory in bounds.
_MICRO_BATCH = {"cpu": 2048, "cuda": 16384}


@dataclass(frozen=True)
class RunRecord:
    """Decisions that a continuation repeats.

    Attributes:
        numerics: Number formats.
        micro_batch_tokens: Padded tokens of one forward pass; with it the grouping of sentences is fixed.
        digests: What stands for the text: digests of the prepared text and vocabularies, corpus weights.
    """

    numerics: Numerics
    micro_batch_tokens: int
    digests: dict[str, str]

    @classmethod
    def settle(cls, job: Job, device: torch.device, *, continued: bool) -> RunRecord:
        """Decide, or repeat what the run decided when it was started.

        Raises:
            UsageError: If the text or the vocabularies changed since then.
            ModelError: If ``env.json`` is damaged.
        """
        weights = " ".join(str(part.weight) for part in job.prepared.train.parts)
        vocabularies = job.prepared.vocabularies.digest
        digests = {"text": job.prepared.digest, "vocabularies": vocabularies, "corpus weights": weights}
        wanted = job.config.micro_batch_tokens
        tokens = wanted if wanted is not None else _MICRO_BATCH[device.type]
        if not continued:
            return cls(Numerics.choose(job.config.precision, device), tokens, digests)
        stored = read_json(job.run.environment)
        before = stored.get("digests")
        require_same_digests(job.run.path, before if isinstance(before, dict) else {}, digests)
        numerics = Numerics.from_json(stored.get("numerics"))
        if not numerics.serves(job.config.precision, device):
            numerics = Numerics.choose(job.config.precision, device)
        kept = stored.get("micro_batch_tokens")
        return cls(numerics, kept if isinstance(kept, int) else tokens, digests)

    def to_json(self) -> dict[str, object]:
        """Plain values for ``env.json``."""
        return {
            "digests": self.digests,
            "numerics": self.numerics.to_json(),
            "micro_batch_tokens": self.micro_batch_tokens,
        }
