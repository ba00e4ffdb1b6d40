"""Models of a run file or recipe as training begins with them, and the text that it would train on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import torch

from deepwire.data.prepare.build import Progress
from deepwire.data.prepare.prepared import prepare
from deepwire.lab.subject.training_text import TrainingText
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.process import own_random_numbers, seed_random_numbers
from deepwire.runfile import load_run_file
from deepwire.training.device_batches import DeviceBatch


@dataclass(frozen=True)
class UntrainedRun:
    """A run that has not begun.

    Attributes:
        name: As the user named it.
        text: Its settings and its prepared text.
        changes: The settings that the user changed, as typed.
    """

    name: str
    text: TrainingText
    changes: tuple[str, ...] = ()

    def model(self, seed: int, device: torch.device, config: ModelConfig | None = None) -> TranslationModel:
        """The model that training with this seed begins with; `config` in the place of the run's model."""
        source, target, languages = self.text.prepared.model_sizes
        with own_random_numbers(device):
            seed_random_numbers(seed, device)
            built = build_model(config or self.text.config.model, source, target, languages=languages)
            built.to(device)
            if built.needs_profile:
                batch = self._first_batch(seed, device)
                built.profile(batch.source, batch.target_input, languages=batch.languages)
            built.begin_update(1)
        return built

    def _first_batch(self, seed: int, device: torch.device) -> DeviceBatch:
        tokens = self.text.config.training.batch_tokens
        with closing(self.text.updates(device, batch_tokens=tokens, seed=seed)) as updates:
            return next(updates).batches[0]

    @property
    def description(self) -> str:
        """The run with its changes, for titles and the provenance of a finding."""
        return " ".join((self.name, *self.changes))


def open_untrained(
    name: str, overrides: Sequence[str] = (), progress: Progress | None = None
) -> UntrainedRun:
    """Read a run file or recipe, and prepare its text where that was not done before.

    Raises:
        UsageError: A setting is wrong.
        DataError, ResourceError: As `deepwire.data.prepare.prepared.prepare`.
    """
    config = load_run_file(name, overrides).config
    prepared = prepare(config.data, seed=config.seed, progress=progress)
    return UntrainedRun(name, TrainingText(config, prepared), tuple(overrides))
