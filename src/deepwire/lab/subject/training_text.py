"""The training text of a run, and the models that training begins with."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

import torch
from pydantic import ValidationError

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import LoadedModel
from deepwire.data.batches.batching import BatchSettings, StreamPosition, UpdateStream
from deepwire.data.prepare.build import Progress
from deepwire.data.prepare.prepared import Prepared, prepare
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError, UsageError
from deepwire.io.regular_files import read_json
from deepwire.lab.subject.model_and_text import run_of
from deepwire.model.build import build_model
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.process import own_random_numbers, seed_random_numbers
from deepwire.runfile import RunFile, load_run_file
from deepwire.training.device import DeviceUpdate, feed


@dataclass(frozen=True)
class TrainingText:
    """The run file of a run, and its prepared text."""

    config: RunFile
    prepared: Prepared

    @property
    def unit(self) -> str:
        """The name of its rows: pairs, or blocks of a language model."""
        return "pairs" if self.config.data.text is None else "blocks"

    def updates(self, device: torch.device, *, batch_tokens: int, seed: int) -> Generator[DeviceUpdate]:
        """Updates without end, in an order that only the seed decides; without random segmentation.

        With several directions all of them are in it, each with its share of training.
        """
        settings = BatchSettings(
            batch_tokens=batch_tokens,
            micro_batch_tokens=self.config.training.micro_batch_tokens or batch_tokens,
            source_bos=self.config.data.source_bos,
            languages=self.prepared.languages,
            context=self.prepared.context,
        )
        return feed(UpdateStream(self.prepared.train, settings, seed=seed), StreamPosition(), device)


def training_text(name: str, loaded: LoadedModel) -> TrainingText:
    """The text that the run of a MODEL name was trained on; prepared again where it is no longer there.

    Raises:
        UsageError: The name belongs to no run directory.
        DataError: The text is gone or damaged.
        ModelError: The stored settings are damaged, or the text gives another vocabulary now.
    """
    run = run_of(name)
    if run is None:
        raise UsageError(
            f"{name} is not a run directory, so its training text is not known",
            "this analysis trains a part of the model; give RUN or RUN@checkpoint",
        )
    return text_of_run(run, loaded.vocabularies)


def text_of_run(
    run: RunDirectory, vocabularies: Vocabularies, progress: Progress | None = None
) -> TrainingText:
    """The text that a run was trained on; prepared again where it is no longer there.

    Raises:
        DataError: The text is gone or damaged.
        ModelError: The stored settings are damaged, or the text gives another vocabulary now.
    """
    config = _run_file(run)
    prepared = prepare(config.data, seed=config.seed, progress=progress)
    if prepared.vocabularies.digest != vocabularies.digest:
        raise ModelError(
            f"{run.path}: its training text gives another vocabulary now",
            "the text has changed since the run was trained; restore it",
        )
    return TrainingText(config, prepared)


def _run_file(run: RunDirectory) -> RunFile:
    stored = read_json(run.resolved_config)
    stored.pop("recipe", None)
    try:
        return RunFile.model_validate(stored)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ModelError(f"{run.resolved_config}: {where}: {first['msg']}") from error


@dataclass(frozen=True)
class UntrainedRun:
    """A run that has not begun, as the user named it, with the settings that the user changed, as typed."""

    name: str
    text: TrainingText
    changes: tuple[str, ...] = ()

    def model(self, seed: int, device: torch.device) -> TranslationModel:
        """The model that training with this seed begins with."""
        source, target, languages = self.text.prepared.model_sizes
        with own_random_numbers(device):
            seed_random_numbers(seed, device)
            built = build_model(self.text.config.model, source, target, languages=languages)
            built.to(device)
            if built.needs_profile:
                tokens = self.text.config.training.batch_tokens
                with closing(self.text.updates(device, batch_tokens=tokens, seed=seed)) as updates:
                    batch = next(updates).batches[0]
                built.profile(batch.source, batch.target_input, languages=batch.languages)
            built.begin_update(1)
        return built

    @property
    def description(self) -> str:
        """The run with its changes, for titles and the provenance of a finding."""
        return " ".join((self.name, *self.changes))


def open_untrained(name: str, overrides: Sequence[str] = ()) -> UntrainedRun:
    """Read a run file or recipe, and prepare its text where that was not done before.

    Raises:
        UsageError: A setting is wrong.
        DataError, ResourceError: As `deepwire.data.prepare.prepared.prepare`.
    """
    config = load_run_file(name, overrides).config
    prepared = prepare(config.data, seed=config.seed)
    return UntrainedRun(name, TrainingText(config, prepared), tuple(overrides))
