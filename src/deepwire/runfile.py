"""The run file: everything that defines a run, in one checked object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from deepwire import recipes
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.config.choice import TRUSTED
from deepwire.config.section import MAY_CHANGE, Section, UnusedSettings, keys_below
from deepwire.config.settings_reader import (
    Settings,
    SettingsDocument,
    absolute,
    canonical_settings,
    read_settings,
)
from deepwire.config.yaml_tree import PlainValue
from deepwire.data.data_config import DataConfig
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.errors import UsageError
from deepwire.model.config import ModelConfig
from deepwire.recipes.notes import RecipeNote, expanded, name_suffix, note_of
from deepwire.training.config import TrainingConfig

if TYPE_CHECKING:
    from deepwire.model.stack import Stack
    from deepwire.model.stack_spec import Side

Value = TypeVar("Value")
Seen = TypeVar("Seen")
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


def _with_presets(given: object) -> object:
    """The settings of a run file, with what its task presets where they say nothing."""
    if not isinstance(given, dict):
        return given
    settings = dict(given)
    for section, presets in _PRESETS.get(given.get("task"), {}).items():
        section_settings = settings.get(section, {})
        if isinstance(section_settings, dict):
            settings[section] = {**presets, **section_settings}
    return settings


def _unused_by_task(task: TaskName) -> UnusedSettings:
    """Settings that mean nothing for the task, by dotted key, and why."""
    if task == "language_model":
        yield "model.source_loss", "a language model has no source, and learns every token"
        yield "training.validation.beam", "a language model translates nothing"
        of_sources = ("max_length_ratio", "max_source_length", "placeholders", "guards", "casing", "rounds")
        for name in (*of_sources, "term_search", "n_best"):
            yield f"decoding.{name}", "a language model has no source"


def _task_faults(
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


class RunFile(Section):
    """A run: data, model, training, decoding."""

    seed: int = Field(default=1, ge=0, lt=2**63, description="seed of everything random")
    run: Path | None = Field(
        default=None,
        json_schema_extra=MAY_CHANGE,
        description="run directory; default: runs/<name of the run file>",
    )
    task: TaskName = Field(
        default="translation",
        description="translation, or language_model: text of one side, read by a decoder alone",
    )
    data: DataConfig = Field(description="text, vocabulary, filters")
    model: ModelConfig = Field(default_factory=ModelConfig, description="architecture")
    training: TrainingConfig = Field(default_factory=TrainingConfig, description="how it is trained")
    decoding: DecodingConfig = Field(
        default_factory=DecodingConfig, json_schema_extra=MAY_CHANGE, description="how text is translated"
    )
    recipe: RecipeNote | None = Field(default=None, description="what a recipe says about itself")

    _has_the_presets_of_its_task = model_validator(mode="before")(_with_presets)

    def unused_settings(self) -> UnusedSettings:
        """Settings of one section for something that another one leaves out."""
        yield from _unused_by_task(self.task)
        if self.data.valid is None:
            for name in ("bleu", "metrics", "metric", "bleu_every", "beam", "max_sentences", "max_tokens"):
                yield f"training.validation.{name}", "there is no validation set; set data.valid"
            yield "training.checkpoint.keep_best", "no checkpoint is the best without data.valid"
        if self.training.record.depth_weights and not self._of_stacks(
            # They are put together where a stack's parameters are.
            lambda stacks: any(stack.depth_weights() for stack in stacks.values())
        ):
            yield "training.record.depth_weights", "this model learns no weights of layers"

    @model_validator(mode="after")
    def _fits(self) -> RunFile:
        """Check what only several sections together tell; the first fault counts."""
        for fault in chain(self._faults(), self._faults_of_layers()):
            raise ValueError(fault)
        return self

    def _faults(self) -> Iterator[str]:
        data, model, training = self.data, self.model, self.training
        yield from _task_faults(self.task, data, model, training)
        languages = data.languages
        targets = () if languages is None or languages.tag != "none" else languages.targets
        if len(targets) > 1 and not model.languages.used:
            yield (
                f"data.tag: none, and model.languages has nothing either: nothing tells the model which "
                f"of {', '.join(targets)} to translate into"
            )
        for name in self.recipe.parameters if self.recipe else ():
            if name in type(self).model_fields or "." in name or "=" in name:
                yield f"recipe.parameters: {name} cannot be the name of a parameter"
        if training.pretrained is not None and model.is_decoder_only:
            yield "training.pretrained fills an encoder, and model.architecture: decoder_only has none"
        if model.source_loss and not data.vocabulary.joint:
            yield (
                "model.source_loss: words of the source are predicted too, so both sides need one "
                "vocabulary; set data.vocabulary.joint=true"
            )
        tie = model.embeddings.tie
        if tie in ("all", "inputs") and not data.vocabulary.joint and data.text is None:
            yield (
                f"model.embeddings.tie: {tie} needs one vocabulary for both sides, and "
                "data.vocabulary.joint is false: set tie to output or none, or joint to true"
            )
        if training.guided_alignment is not None and model.is_decoder_only:
            yield (
                "training.guided_alignment guides cross-attention, and model.architecture: decoder_only "
                "has none"
            )
        elif training.guided_alignment is not None and not data.aligned:
            yield (
                "training.guided_alignment learns alignments of the training text: name their file with "
                "alignments beside the prefix in data.train"
            )
        if model.share_layers and training.sharding != "none":
            yield "model.share_layers does not work with training.sharding, which divides layers"

    def _faults_of_layers(self) -> Iterator[str]:
        """Where layers do not fit as they say themselves, built without values."""
        decoding, model = self.decoding, self.model
        if decoding.rounds is not None and model.encoder.recurrence is None:
            yield f"decoding.rounds {decoding.rounds}: the encoder has no rounds (model.encoder.recurrence)"
        place = ""
        try:
            if self.training.layer_drop is not None:
                place = "training."
                self.training.layer_drop.check(model)
            place = ""
            if model.parametrization is not None:
                self.training.optimizer.check_parametrization()
            if model.share_layers:
                place = "model."
                self._of_stacks(dict)
            if decoding.group_range is not None:
                place = f"decoding.groups {decoding.groups}: "
                self._of_stacks(dict)["decoder"].restrict(*decoding.group_range)
        except ValueError as error:
            yield f"{place}{error}"

    def vocabulary_sizes(self, size: int) -> tuple[int, int]:
        """Entries of both vocabularies of a model, where each has so many; 0: there is no source."""
        return (0 if self.data.text is not None else size, size)

    def _of_stacks(self, look: Callable[[dict[Side, Stack]], Seen]) -> Seen:
        """A fact that only the stacks know about themselves, which are built without values."""
        from deepwire.model.build import build_stacks
        from deepwire.model.meta_init import outline

        return outline(self.model, lambda: look(build_stacks(self.model, self.model.specs())))


CHANGEABLE = frozenset(key for key, field in keys_below(RunFile) if field.json_schema_extra == MAY_CHANGE)
"""The settings, with all below them, that may change in the middle of a run."""


@dataclass(frozen=True)
class LoadedRunFile:
    """A run file as the commands use it."""

    config: RunFile
    """The settings; relative paths of the file are absolute, ``run`` is as written."""
    path: Path
    """The file that was read."""
    name: str
    """Name of the run: the stem of the file, with the values of its parameters; empty where there is none."""
    resolved: dict[str, PlainValue]
    """All settings, defaults included, as plain values for JSON or YAML."""
    origins: dict[str, str]
    """Where each value was written: dotted key to ``file:line`` or ``command line``; others are defaults."""
    text: str
    """The file as it was read; of a mapping one that says the same, with the arguments."""

    def to_json(self) -> dict[str, object]:
        """All of it for another process, which makes the same of it with `from_json`."""
        return {
            "path": str(self.path),
            "name": self.name,
            "resolved": self.resolved,
            "origins": self.origins,
            "text": self.text,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> LoadedRunFile:
        """The inverse of `to_json`."""
        whole = {**values, "path": Path(str(values["path"]))}
        return cls(RunFile.model_validate(values["resolved"], context=TRUSTED), **whole)  # type: ignore[arg-type]  # as written

    @property
    def run_directory(self) -> Path:
        """Where the run lives: ``run``, or ``runs/<name>`` in the working directory.

        Raises:
            UsageError: The settings came from no file, and name no run directory.
        """
        if self.config.run is None and not self.name:
            raise UsageError("settings: name the run directory", 'such as run="runs/mine"')
        return self.config.run or Path("runs") / self.name


def load_run_file(
    run: str | PathLike[str] | Mapping[str, object],
    overrides: Sequence[str] = (),
    arguments: Mapping[str, object] | None = None,
    *,
    trusted: bool = False,
) -> LoadedRunFile:
    """Read the run file or recipe, apply overrides, and check everything.

    Args:
        run: A path, the name of a recipe, or a mapping with what a run file holds.
        overrides: ``key.sub=value``, or ``parameter=value`` with a parameter that the recipe declares.
        arguments: Overrides as plain values, by section: ``{"training": {"max_updates": 100}}``; and
            parameters.
        trusted: Whether names in the file may import other packages, as training lets them.

    Raises:
        UsageError: If anything is wrong; one line per mistake, each beginning with file and line.
    """
    name = run if isinstance(run, Mapping) else str(run)
    if isinstance(name, str):
        overrides, arguments = _without_parameters(name, overrides, arguments or {})
    settings = read_settings(
        RunFile,
        name,
        overrides,
        locate=locate,
        own_keys=frozenset({"recipe"}),
        arguments=arguments,
        trusted=trusted,
    )
    config = _with_absolute_paths(settings)
    resolved: dict[str, PlainValue] = config.model_dump(mode="json")
    path = settings.document.path
    stem = "" if isinstance(run, Mapping) else path.stem
    if stem and config.recipe is not None:
        stem += name_suffix(config.recipe.parameters, resolved)
    return LoadedRunFile(config, path, stem, resolved, settings.origins(), settings.text)


def _without_parameters(
    name: str, overrides: Sequence[str], arguments: Mapping[str, object]
) -> tuple[list[str], dict[str, object]]:
    """The settings with the keys that parameters of the run file stand for; it is read for them alone."""
    short = {key for key in arguments if key not in RunFile.model_fields}
    undotted = {text.partition("=")[0].strip() for text in overrides if "." not in text.partition("=")[0]}
    if not short and undotted <= set(RunFile.model_fields):
        return [*overrides], dict(arguments)
    parameters = note_of(locate(name, None)).parameters
    given = [f"{key}={arguments[key]}" for key in sorted(short & set(parameters))]
    rest = {key: value for key, value in arguments.items() if key not in parameters}
    return expanded([*overrides, *given], parameters, RunFile.model_fields), rest


def completed(record: Mapping[str, object]) -> Mapping[str, object]:
    """Settings that a run recorded, perhaps with an earlier version, with the defaults of this one added.

    Settings that change nothing have their defaults, whatever was recorded: a run file may not set them, and
    the run is to continue without them. A record that this version cannot read comes back as it is.
    """
    settings = {key: value for key, value in record.items() if key not in ("recipe", "export")}
    try:
        return canonical_settings(RunFile.model_validate(settings))
    except ValidationError:
        return record


def locate(name: str, parent: SettingsDocument | None) -> SettingsDocument:
    """The file behind a name: a path if it ends in .yaml or .yml, else a recipe, else any file that exists.

    Raises:
        UsageError: If the name is neither.
    """
    written = Path(name)
    if written.suffix in {".yaml", ".yml"}:
        return _document(written, Path.cwd() if parent is None else parent.path.parent)
    recipe = recipes.find(name)
    if recipe is not None:
        # A recipe lies inside the package; paths in it mean the user's working directory.
        return SettingsDocument(recipe, f"recipe {name}", Path.cwd())
    if parent is None and RunDirectory(written).user_config.exists():
        raise UsageError(
            f"{name}: is a run directory, not a run file", "give the run file that it began with"
        )
    if parent is None and written.exists():
        return _document(written, Path.cwd())
    error = recipes.unknown(name)
    if parent is None:
        raise UsageError(f"{name}: no such run file or recipe", error.hint)
    raise error


def _document(path: Path, folder: Path) -> SettingsDocument:
    full = absolute(path, folder)
    label = str(full.relative_to(Path.cwd())) if full.is_relative_to(Path.cwd()) else str(full)
    return SettingsDocument(full, label, full.parent)


def _with_absolute_paths(settings: Settings[RunFile]) -> RunFile:
    """Relative paths start from the folder of the file they were written in; ``run`` stays as it is."""
    config = settings.section
    moved = {
        name: _moved(getattr(config, name), (name,), settings)
        for name in ("data", "model", "training", "decoding")
    }
    return config.model_copy(update=moved)


def _moved(value: Value, path: tuple[str | int, ...], settings: Settings[RunFile]) -> Value:
    changed: object = value
    if isinstance(value, Path):
        location = settings.location_of(path)
        changed = absolute(value, settings.document.folder if location is None else location.folder)
    elif isinstance(value, Section):
        fields = {name: (getattr(value, name), (*path, name)) for name in type(value).model_fields}
        moved = {name: _moved(old, where, settings) for name, (old, where) in fields.items()}
        changes = {name: new for name, new in moved.items() if new is not fields[name][0]}
        changed = value.model_copy(update=changes) if changes else value
    elif isinstance(value, list | tuple):
        items = [_moved(item, (*path, index), settings) for index, item in enumerate(value)]
        changed = type(value)(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return changed  # type: ignore[return-value]  # the same type, by construction
