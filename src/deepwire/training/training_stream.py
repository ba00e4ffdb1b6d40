"""The batches of a run, of what its settings say about text."""

from __future__ import annotations

from deepwire.data.batches.batching import BatchSettings, UpdateStream
from deepwire.training.run.spec import TrainingSpec


def training_stream(spec: TrainingSpec, micro_batch_tokens: int, share: tuple[int, int]) -> UpdateStream:
    """The training batches of process number `share[0]` of `share[1]`."""
    prepared = spec.prepared
    settings = BatchSettings(
        batch_tokens=spec.config.batch_tokens,
        micro_batch_tokens=micro_batch_tokens,
        source_bos=spec.source_bos,
        sampling=spec.sampling,
        languages=prepared.languages,
        context=prepared.context,
        noise=spec.noise,
        aligned=spec.config.guided_alignment is not None,
    )
    return UpdateStream(
        prepared.train, settings, seed=spec.seed, vocabularies=prepared.vocabularies, share=share
    )
