"""The tasks of a run: what each presets in a run file, what means nothing for it, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from deepwire.config.section import UnusedSettings
from deepwire.data.data_config import DataConfig
from deepwire.model.config import ModelConfig
from deepwire.training.config import TrainingConfig

TaskName = Literal["translation", "language_model"]

_PRESETS: Mapping[object, Mapping[str, Mapping[str, object]]] = {
    "language_model": {
        "data": {"text": {}},
        "model": {"architecture": "decoder_only"},
        # Smoothing makes translations better, and perplexities worse.
        "training": {"label_smoothing": 0.0},
    }
}
"""Settings that have another default for a task than elsewhere, by section."""


def with_presets(given: object) -> object:
    """The settings of a run file, with what its task presets where they say nothing."""
    if not isinstance(given, dict):
        return given
    settings = dict(given)
    for section, presets in _PRESETS.get(given.get("task"), {}).items():
        section_settings = settings.get(section, {})
        if isinstance(section_settings, dict):
            settings[section] = {**presets, **section_settings}
    return settings


def unused_by_task(task: TaskName) -> UnusedSettings:
    """Settings that mean nothing for the task, by dotted key, and why."""
    if task == "language_model":
        yield "model.source_loss", "a language model has no source, and learns every token"
        yield "training.validation.beam", "a language model translates nothing"
        of_sources = ("max_length_ratio", "max_source_length", "placeholders", "guards", "casing", "rounds")
        for name in (*of_sources, "term_search", "n_best"):
            yield f"decoding.{name}", "a language model has no source"


def task_faults(
    task: TaskName, data: DataConfig, model: ModelConfig, training: TrainingConfig
) -> Iterator[str]:
    """Where the sections of a run file do not fit the task."""
    if task == "translation":
        if data.text is not None:
            yield "data.text is text of one side: set task: language_model"
        return
    if data.text is None:
        yield "task: language_model needs data.text; leave it out, and it has its defaults"
    elif not model.is_decoder_only:
        yield (
            f"task: language_model has no source to encode: set model.architecture to decoder_only, "
            f"not {model.architecture}"
        )
    elif (model.decoder.positions or model.positions).has_rows and data.text.block > model.max_length:
        yield (
            f"data.text.block is {data.text.block} tokens, but model.max_length has {model.max_length} "
            "positions"
        )
    if training.input_noise is not None and training.input_noise.source.total:
        yield "training.input_noise.source: a language model has no source; set training.input_noise.target"
    if training.validation.text_metrics:
        yield (
            f"training.validation: {training.validation.text_metrics[0]} scores translations, and a "
            "language model has none; it is scored by perplexity"
        )
