"""The tasks of a run: what each presets in a run file, what means nothing for it, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from deepwire.config.section import UnusedSettings
from deepwire.data.data_config import DataConfig
from deepwire.model.config import ModelConfig
from deepwire.training.config import TrainingConfig

TaskName = Literal["translation", "language_model"]


class Task(Protocol):
    """The purpose of a model."""

    presets: Mapping[str, Mapping[str, object]]
    """Settings that have another default than elsewhere, by section."""

    def unused_settings(self) -> UnusedSettings:
        """Settings that mean nothing for the task, by dotted key, and why."""

    def check(self, data: DataConfig, model: ModelConfig, training: TrainingConfig) -> None:
        """Check that the sections of a run file fit the task.

        Raises:
            ValueError: A setting is not.
        """


class TranslationTask:
    """Text of a source language becomes text of a target language."""

    presets: Mapping[str, Mapping[str, object]] = {}

    def unused_settings(self) -> UnusedSettings:
        """All settings mean something."""
        return iter(())

    def check(self, data: DataConfig, model: ModelConfig, training: TrainingConfig) -> None:  # noqa: ARG002 - as `Task` has it
        """Pairs are no text of one side."""
        if data.text is not None:
            raise ValueError("data.text is text of one side: set task: language_model")


class LanguageModellingTask:
    """Each token of a text is predicted from those before it, by a decoder alone."""

    presets: Mapping[str, Mapping[str, object]] = {
        "data": {"text": {}},
        "model": {"architecture": "decoder_only"},
        # Smoothing makes translations better, and perplexities worse.
        "training": {"label_smoothing": 0.0},
    }

    def unused_settings(self) -> UnusedSettings:
        """Settings of a source and of the search for translations."""
        yield "model.source_loss", "a language model has no source, and learns every token"
        yield "training.validation.beam", "a language model translates nothing"
        of_sources = ("max_length_ratio", "max_source_length", "placeholders", "guards", "casing", "rounds")
        for name in (*of_sources, "term_search", "n_best"):
            yield f"decoding.{name}", "a language model has no source"

    def check(self, data: DataConfig, model: ModelConfig, training: TrainingConfig) -> None:
        """A decoder alone, blocks that its positions hold, and no scores of translations."""
        if data.text is None:
            raise ValueError("task: language_model needs data.text; leave it out, and it has its defaults")
        if not model.is_decoder_only:
            raise ValueError(
                f"task: language_model has no source to encode: set model.architecture to decoder_only, "
                f"not {model.architecture}"
            )
        stack = model.decoder
        if (stack.positions or model.positions).has_rows and data.text.block > model.max_length:
            raise ValueError(
                f"data.text.block is {data.text.block} tokens, but model.max_length has {model.max_length} "
                "positions"
            )
        if training.input_noise is not None and training.input_noise.source.total:
            raise ValueError(
                "training.input_noise.source: a language model has no source; set training.input_noise.target"
            )
        if training.validation.text_metrics:
            raise ValueError(
                f"training.validation: {training.validation.text_metrics[0]} scores translations, and a "
                "language model has none; it is scored by perplexity"
            )


TASKS: Mapping[TaskName, Task] = {"translation": TranslationTask(), "language_model": LanguageModellingTask()}


def with_presets(given: object) -> object:
    """The settings of a run file, with what its task presets where they say nothing."""
    if not isinstance(given, dict):
        return given
    task = TASKS.get(given.get("task", "translation"))
    settings = dict(given)
    for section, presets in {} if task is None else task.presets.items():
        section_settings = settings.get(section, {})
        if isinstance(section_settings, dict):
            settings[section] = {**presets, **section_settings}
    return settings
