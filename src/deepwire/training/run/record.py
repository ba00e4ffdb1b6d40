"""What a run decided at its start and keeps for its whole life, in ``env.json``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from deepwire.errors import DataError, ModelError, UsageError
from deepwire.training.micro_batch import usual_micro_batch
from deepwire.training.precision_policy import PrecisionPolicy
from deepwire.training.run.same_settings import read_own, require_same_digests, without
from deepwire.training.run.spec import TrainingSpec


@dataclass(frozen=True)
class RunRecord:
    """Decisions that a continuation repeats.

    Attributes:
        precision_policy: Number formats.
        micro_batch_tokens: Padded tokens of one forward pass; with it the grouping of sentences is fixed.
        digests: What stands for the text: digests of the prepared text and vocabularies, corpus weights.
        processes: How many processes train; not a decision, because a continuation may have another number.
    """

    precision_policy: PrecisionPolicy
    micro_batch_tokens: int
    digests: dict[str, str]
    processes: int

    @classmethod
    def settle(
        cls, spec: TrainingSpec, device: torch.device, processes: int, *, continued: bool
    ) -> RunRecord:
        """Decide, or repeat what the run decided when it was started.

        Raises:
            UsageError: If the text or the vocabularies changed since then.
            ModelError: If ``env.json`` is damaged.
        """
        digests = _digests(spec)
        wanted = spec.config.micro_batch_tokens
        if not continued:
            precision_policy = PrecisionPolicy.choose(spec.config.precision, device)
            return cls(precision_policy, wanted or _micro_batch(spec, precision_policy), digests, processes)
        path = spec.run.environment
        stored = read_own(path)
        before, kept = stored.get("digests"), stored.get("micro_batch_tokens")
        if not isinstance(before, dict):
            raise _damaged(path, f"digests are {before!r}")
        if kept is not None and not (isinstance(kept, int) and kept > 0):
            raise _damaged(path, f"micro_batch_tokens is {kept!r}")
        require_same_digests(spec.run.path, before, digests)
        try:
            precision_policy = PrecisionPolicy.from_json(stored.get("numerics"))
        except ModelError as error:
            raise _damaged(path, error.message) from error
        if not precision_policy.serves(spec.config.precision, device):
            precision_policy = PrecisionPolicy.choose(spec.config.precision, device)
        tokens = kept or wanted or _micro_batch(spec, precision_policy)
        return cls(precision_policy, tokens, digests, processes)

    @classmethod
    def from_json(cls, value: object) -> RunRecord:
        """Read what ``to_json`` gave.

        Raises:
            ModelError: If it is something else.
        """
        match value:
            case {
                "numerics": precision_policy,
                "micro_batch_tokens": int(tokens),
                "digests": dict(digests),
                "processes": int(processes),
            }:
                return cls(PrecisionPolicy.from_json(precision_policy), tokens, digests, processes)
            case _:
                raise ModelError(f"stored decisions are damaged: {value!r}")

    def require_here(self, spec: TrainingSpec, device: torch.device) -> None:
        """See that this process, which did not decide, has the same text and the same kind of device.

        Raises:
            DataError: If it has other text.
            UsageError: If it has another kind of device.
        """
        own = _digests(spec)
        if own != self.digests:
            names = ", ".join(name for name in own if own[name] != self.digests.get(name))
            raise DataError(
                f"{spec.prepared.folder}: the processes of this run see different text ({names})",
                "see that data.train and data.prepared hold the same on all machines",
            )
        if device.type != self.precision_policy.device_type:
            raise UsageError(
                f"one process trains on {self.precision_policy.device_type}, another on {device.type}",
                "set training.device: cpu, or start processes only where there is a GPU for each",
            )

    def to_json(self) -> dict[str, object]:
        """Plain values for ``env.json``."""
        return {
            "digests": self.digests,
            "numerics": self.precision_policy.to_json(),
            "micro_batch_tokens": self.micro_batch_tokens,
            "processes": self.processes,
        }


def _damaged(path: Path, reason: str) -> ModelError:
    return ModelError(f"{path}: is damaged: {reason}", without(path))


def processes_before(spec: TrainingSpec) -> int:
    """How many processes trained the run before.

    Raises:
        ModelError: If ``env.json`` is damaged.
    """
    count = read_own(spec.run.environment).get("processes")
    return count if isinstance(count, int) else 1


def _micro_batch(spec: TrainingSpec, precision_policy: PrecisionPolicy) -> int:
    match spec.resolved:
        case {"model": {"d_model": int(width)}}:
            return usual_micro_batch(precision_policy.device_type, precision_policy.precision, width)
        case _:  # not made from a run file
            return usual_micro_batch(precision_policy.device_type, precision_policy.precision, 0)


def _digests(spec: TrainingSpec) -> dict[str, str]:
    weights = " ".join(str(part.weight) for part in spec.prepared.train.parts)
    vocabularies = spec.prepared.vocabularies.digest
    return {"text": spec.prepared.digest, "vocabularies": vocabularies, "corpus weights": weights}
