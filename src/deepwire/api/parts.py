"""The loose parts of a training, for a loop of one's own: untrained models, batches, loss, optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

import torch
from torch import Tensor

from deepwire.api.prepare import RunSettings, load_settings
from deepwire.api.specification import model_metadata
from deepwire.checkpoint.store import save_model
from deepwire.config.counts import MAX_SIZE, require_int
from deepwire.config.settings_reader import from_mapping
from deepwire.data.batches.batching import BatchSettings, StreamPosition, UpdateStream, validation_batches
from deepwire.data.prepare import prepared as preparation
from deepwire.data.prepare.prepared import Prepared
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.model.update_scales import update_scales
from deepwire.ops.process import own_random_numbers, restore_torch_settings, seed_random_numbers
from deepwire.runfile import RunFile, load_run_file
from deepwire.training.device import DeviceBatch, choose_device, to_device
from deepwire.training.freezing import with_rate_factors
from deepwire.training.optimizers.optimizer import Optimizer, make_optimizer
from deepwire.training.parallel_strategy import ParallelStrategy
from deepwire.training.schedule import Schedule


def build(
    config: ModelConfig | Mapping[str, object] | str | PathLike[str],
    vocabulary_size: int | tuple[int, int] | Prepared,
    *,
    languages: int = 0,
) -> TranslationModel:
    """An untrained model, initialised as its configuration says, from torch's random numbers.

    Args:
        config: The model section: an object, a mapping with the keys of a run file's ``model``, or the name
            of a recipe or run file whose model section to take.
        vocabulary_size: Entries of the vocabulary, or of the source and the target vocabulary, tags of
            languages included; or the prepared text that the model is for.
        languages: How many languages there are, for models with parameters of each; default: those of the
            prepared text, or those that the run file lists.

    Raises:
        UsageError: If the mapping, run file or recipe is wrong, a vocabulary has no room for the special
            entries or absurdly many.
    """
    if isinstance(config, str | PathLike):
        run = load_run_file(fspath(config)).config
        config, listed = run.model, run.data.languages
        languages = languages or (0 if listed is None else len(listed.names))
    elif not isinstance(config, ModelConfig):
        config = from_mapping(ModelConfig, config, "model")
    if isinstance(vocabulary_size, Prepared):
        source, target, of_text = vocabulary_size.model_sizes
        languages = languages or of_text
    else:
        sizes = vocabulary_size if isinstance(vocabulary_size, tuple) else (vocabulary_size, vocabulary_size)
        source, target = (
            require_int(size, "vocabulary_size", 4, "four entries are special", most=MAX_SIZE)
            for size in sizes
        )
    return build_model(config, source, target, languages=languages)


@dataclass(frozen=True)
class TrainingParts:
    """The parts of a training, ready for a loop of one's own.

    Attributes:
        prepared: The text, as `deepwire.prepare` gives it.
        model: The untrained model, in training mode on `device`.
        optimizer: Adam or Muon with clipping, as the settings say: ``optimizer.step(rate, loss)``. Any
            optimizer of torch over ``model.parameters()`` will do as well.
        schedule: The learning rate of an update; they are counted from 1: ``enumerate(batches, 1)``.
        device: Where the model is.
        settings: The whole run file.
    """

    prepared: Prepared
    model: TranslationModel
    optimizer: Optimizer
    schedule: Schedule
    device: torch.device
    settings: RunFile

    def batches(
        self, *, epochs: int | None = None, batch_tokens: int | None = None, seed: int | None = None
    ) -> Iterator[DeviceBatch]:
        """The training text as tensors, in random order, sentences of similar length together.

        Args:
            epochs: How often to go through the text; None = without end.
            batch_tokens: Most padded tokens of a batch; default: ``training.batch_tokens``.
            seed: Every number gives another order; default: ``seed``.

        Returns:
            Batches on the device with `source` ``[B, S]``, `target_input` and `target_output` ``[B, T]``,
            int64, padded with 0, and `languages` ``[B]`` or None.
        """
        tokens = self.settings.training.batch_tokens if batch_tokens is None else batch_tokens
        settings = BatchSettings(
            batch_tokens=tokens,
            micro_batch_tokens=tokens,
            source_bos=self.settings.data.source_bos,
            sampling=self.settings.data.vocabulary.sampling,
            languages=self.prepared.languages,
            context=self.prepared.context,
        )
        stream = UpdateStream(
            self.prepared.train,
            settings,
            seed=self.settings.seed if seed is None else seed,
            vocabularies=self.prepared.vocabularies,
        )
        for update, _ in stream.updates(StreamPosition()):
            if epochs is not None and update.epoch >= epochs:
                return
            for batch in update.batches:
                yield to_device(batch, self.device)

    def validation_batches(self, *, batch_tokens: int | None = None) -> Iterator[DeviceBatch]:
        """The validation text once, as tensors, sorted by length.

        Raises:
            UsageError: There is none.
        """
        if self.prepared.valid is None:
            raise UsageError("there is no validation text", "set data.valid")
        batches = validation_batches(
            self.prepared.valid,
            batch_tokens or self.settings.training.validation.max_tokens,
            source_bos=self.settings.data.source_bos,
            languages=self.prepared.languages,
            context=self.prepared.context,
        )
        return (to_device(batch, self.device) for batch in batches)

    def loss(self, batch: DeviceBatch) -> Tensor:
        """Smoothed cross-entropy per target token of a batch, nats: a scalar to call ``backward()`` on.

        In training mode the input is disturbed as the settings say, and R-Drop and SimCut count.
        """
        config, trains = self.settings.training, self.model.training
        sums = self.model.loss(
            batch.source,
            batch.target_input,
            batch.target_output,
            config.label_smoothing,
            config.label_smoothing_form,
            config.r_drop if trains else 0.0,
            languages=batch.languages,
            perturbation=config.perturbation(self.prepared.vocabularies) if trains else None,
        )
        return sums.smoothed / sums.tokens

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the model as a model directory, which `deepwire.load` and all commands read.

        Raises:
            UsageError: The folder is there and holds no model.
            ResourceError: It cannot be written; what was there before is intact.
        """
        metadata = model_metadata(self.settings, self.prepared)
        save_model(Path(folder), self.model, self.prepared.vocabularies, metadata)


def training_parts(run: RunSettings, /, **settings: object) -> TrainingParts:
    """Prepare the text of a run and make its model, optimizer and schedule; no run directory is made.

    The parameters are those that `deepwire.train` begins with (the scales of connection `admin` come from the
    first of `batches`, not the first micro-batch). What else training does (micro-batches, bfloat16,
    validation, checkpoints, freezing, averaging, dropping layers, guided alignment, starting from another
    model, and `model.begin_update(number)` where a connection changes with the updates) is up to the caller.

    Args:
        run: Run file, recipe, or a mapping with what a run file holds.
        settings: Sections that override those of `run`.

    Raises:
        UsageError, DataError, ResourceError: As in `deepwire.prepare`, or the device is not there.
    """
    config = load_settings(run, settings).config
    with restore_torch_settings():
        device = choose_device(config.training.device, ProcessGroup())
    prepared = preparation.prepare(config.data, seed=config.seed)
    with own_random_numbers(device):
        seed_random_numbers(config.seed, device)
        model = build_model(config.model, *prepared.model_sizes).to(device).train()
    training, strategy = config.training, ParallelStrategy(model, ProcessGroup())
    scales = with_rate_factors(update_scales(model), model, training.rate_factors)
    parts = TrainingParts(
        prepared=prepared,
        model=model,
        optimizer=make_optimizer(model, training.optimizer, training.clip_norm, strategy, scales=scales),
        schedule=training.schedule.build(d_model=config.model.base_width, max_updates=training.max_updates),
        device=device,
        settings=config,
    )
    if model.needs_profile:
        with own_random_numbers(device):
            seed_random_numbers(config.seed, device)
            batch = next(parts.batches())
            model.profile(batch.source, batch.target_input, languages=batch.languages)
    return parts
