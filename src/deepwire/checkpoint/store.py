"""Model directories: a folder that holds all that translation needs, and nothing that runs code.

``model.safetensors`` (parameters), ``config.json`` (architecture, vocabulary sizes, metadata),
``vocabulary/`` and ``manifest.json`` (size and digest of every file).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from deepwire import plugins
from deepwire.checkpoint.model_files import (
    MANIFEST,
    DamagedError,
    Shape,
    bytes_of,
    check_manifest,
    read_shapes,
    read_tensors,
    write_manifest,
    write_tensors,
)
from deepwire.config.choice import plugins_of
from deepwire.data.context import ContextConfig
from deepwire.data.languages import Languages
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import DeepwireError, ModelError, UsageError
from deepwire.io.atomic import json_text, new_folder, require_space
from deepwire.io.regular_files import cannot_read, read_json
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.meta_init import SkipInitialValues, outline
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.process import own_random_numbers

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
VOCABULARY = "vocabulary"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
PARITY = "parity.json"
"""In a folder that `deepwire export` wrote: the model that it was made from, and what was compared."""

FORMAT = 1
_REQUIRED = (WEIGHTS, CONFIG)
_BUFFER = "state."
_SLACK = 1_000_000
_SHOWN = 5
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
_FORMS = "give a run directory, RUN@last, RUN@avg5 or a model directory"
_IMPORT = "'deepwire import' reads checkpoints of fairseq, Neutron and transformers, with a restricted reader"
_NO_PICKLE = f"a pickle file is not opened as a model, because it can run code; {_IMPORT}"


@dataclass(frozen=True)
class LoadedModel:
    """A model read from disk, in evaluation mode.

    Attributes:
        model: The model, on the device and in the number format that were asked for.
        vocabularies: Its two vocabularies.
        metadata: What was stored with it: languages, decoding defaults, scores, where it came from.
        folder: Where it was read from.
    """

    model: TranslationModel
    vocabularies: Vocabularies
    metadata: dict[str, object]
    folder: Path

    @property
    def languages(self) -> tuple[str, ...]:
        """Names of the languages of a model of several, in the order of their numbers; else none."""
        return language_names(self.metadata)


def save_model(
    folder: Path, model: TranslationModel, vocabularies: Vocabularies, metadata: dict[str, object]
) -> None:
    """Write a model directory in one step; a model directory that is already there is replaced.

    Raises:
        UsageError: Something else is there.
        ResourceError: If the disk is full or cannot be written; what was there before is intact.
    """
    _require_replaceable(folder)
    parameters = model_parameters(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    require_space(folder.parent, bytes_of(parameters) + _SLACK)
    with new_folder(folder) as temporary:
        write_model_files(temporary, model, parameters, vocabularies, metadata)
        write_manifest(temporary)


def _require_replaceable(folder: Path) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or not (folder / WEIGHTS).exists():
        raise UsageError(f"{folder}: exists already and is no model", "name another folder")


def write_model_files(
    folder: Path,
    model: TranslationModel,
    parameters: dict[str, Tensor],
    vocabularies: Vocabularies,
    metadata: dict[str, object],
) -> None:
    """Put the files of a model directory, without its manifest, into an existing folder."""
    write_tensors(folder / WEIGHTS, parameters)
    if model.languages not in (0, len(language_names(metadata))):
        raise ValueError(f"metadata must name the {model.languages} languages of the model")
    record = {
        "format": FORMAT,
        "model": model.config.model_dump(mode="json"),
        "source_vocabulary": model.source_vocabulary,
        "target_vocabulary": model.target_vocabulary,
        "metadata": metadata,
    }
    if used := [plugin.to_json() for plugin in plugins_of(model.config)]:
        record["plugins"] = used
    (folder / CONFIG).write_text(json_text(record), encoding="utf-8")
    (folder / VOCABULARY).mkdir()
    vocabularies.save(folder / VOCABULARY)


def model_parameters(model: TranslationModel) -> dict[str, Tensor]:
    """The values to save: every parameter once, shared ones under their first name, and persistent buffers.

    The names of buffers begin with ``state.``: they are not counted as parameters.
    """
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return parameters | {f"{_BUFFER}{name}": value for name, value in saved_buffers(model).items()}


def saved_buffers(model: TranslationModel) -> dict[str, Tensor]:
    """The state of a model besides its parameters, such as what changes with the updates, by name."""
    return {
        f"{prefix}.{name}": value
        for prefix, module in model.named_modules()
        for name, value in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    }


def parameter_count(folder: Path) -> int:
    """How many parameters a model directory holds, shared ones counted once; nothing but names is read.

    Raises:
        ModelError: The file of weights is missing or damaged.
    """
    shapes = read_shapes(folder / WEIGHTS)
    return sum(math.prod(shape) for name, shape in shapes.items() if not name.startswith(_BUFFER))


def load_model(
    folder: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> LoadedModel:
    """Read a model directory.

    Raises:
        ModelError: If it is missing, damaged, in a foreign format, or its parts do not fit one another; or if
            a weight is not finite.
    """
    require_model(folder)
    check_manifest(folder, required=_REQUIRED, skip=(OPTIMIZER, STATE))
    record = read_config(folder)
    shapes = read_shapes(folder / WEIGHTS)
    vocabularies = read_vocabularies(folder)
    model = _fitting_model(folder, record, shapes, vocabularies)
    read_weights(folder, model)
    for name, value in model.named_parameters():
        require_finite(folder, name, value)
    model = model.to(device=torch.device(device), dtype=dtype).eval()
    return LoadedModel(model, vocabularies, metadata_of(record), folder)


def require_finite(folder: Path, name: str, value: torch.Tensor) -> None:
    """Refuse a tensor of the model in ``folder`` that holds NaN or infinity.

    Raises:
        ModelError: It does.
    """
    if not value.isfinite().all():
        raise ModelError(
            f"{folder / WEIGHTS}: NaN or infinity in {name}",
            "it is damaged, or diverged in training: take an earlier checkpoint",
        )


def read_weights(folder: Path, model: TranslationModel) -> None:
    """Copy the parameters of ``folder``, and what else was saved of its model, into ``model``.

    Raises:
        ModelError: If a name or shape does not fit, listing what differs.
    """
    path = folder / WEIGHTS
    parameters = model_parameters(model)
    check_fit(path, read_shapes(path), {name: tuple(value.shape) for name, value in parameters.items()})
    tensors = read_tensors(path, torch.device("cpu"))
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def read_vocabularies(folder: Path) -> Vocabularies:
    """The vocabularies of a model directory.

    Raises:
        ModelError: If they cannot be read.
    """
    try:
        return Vocabularies.load(folder / VOCABULARY)
    except DamagedError:
        raise
    except (DeepwireError, OSError) as error:
        raise ModelError(f"{folder / VOCABULARY}: cannot be read: {error}") from error


def read_config(folder: Path) -> dict[str, object]:
    """The record in ``config.json`` of a model directory.

    Raises:
        ModelError: If it cannot be read or was written in a newer format.
    """
    record = read_json(folder / CONFIG)
    if "model_type" in record:
        raise ModelError(
            f"{folder}: is a model of transformers", f"deepwire import huggingface {folder} makes one of it"
        )
    if record.get("format") != FORMAT:
        raise ModelError(
            f"{folder / CONFIG}: model format {record.get('format')!r}, but this version reads {FORMAT}",
            "install the version of deepwire that wrote the model, or a newer one",
        )
    return record


def recorded_config(record: dict[str, object], folder: Path) -> ModelConfig:
    """The architecture in a record from `read_config`; code of other packages is imported if it is allowed.

    Raises:
        ModelError: This version does not know it, or it needs a package that is missing or not allowed.
    """
    plugins.check_recorded(record.get("plugins"), str(folder))
    try:
        return ModelConfig.model_validate(record.get("model"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("model", *first["loc"]))
        raise ModelError(f"{folder / CONFIG}: {where}: {first['msg']}") from error


def read_metadata(folder: Path) -> dict[str, object]:
    """The record of a model directory besides its architecture.

    Raises:
        ModelError: If it holds no model, or its record cannot be read.
    """
    require_model(folder)
    return metadata_of(read_config(folder))


def metadata_of(record: dict[str, object]) -> dict[str, object]:
    """The metadata in a record from `read_config`; none in a record without."""
    metadata = record.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def require_translation(name: str | Path, metadata: Mapping[str, object]) -> None:
    """Check that a model of such metadata translates; `name` is what errors call it.

    Raises:
        ModelError: It is a language model.
    """
    if metadata.get("text") is not None:
        raise ModelError(
            f"{name}: is a language model, which has no source to translate",
            "deepwire generate continues text with it, and deepwire perplexity scores text",
        )


def language_names(metadata: dict[str, object]) -> tuple[str, ...]:
    """The names under `languages` of a model's metadata; none for a model of one language pair."""
    names = metadata.get("languages")
    return tuple(map(str, names)) if isinstance(names, list | tuple) else ()


def check_fit(path: Path, actual: dict[str, Shape], expected: dict[str, Shape]) -> None:
    """Check that a file holds the parameters that a model has.

    Raises:
        ModelError: Listing missing, unknown and differently shaped parameters.
    """
    wrong = [f"{name} is missing" for name in expected.keys() - actual.keys()]
    wrong += [f"{name} is unknown" for name in actual.keys() - expected.keys()]
    wrong += [
        f"{name} is {list(actual[name])}, not {list(expected[name])}"
        for name in expected.keys() & actual.keys()
        if actual[name] != expected[name]
    ]
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ModelError(
            f"{path}: parameters do not fit the configuration: {'; '.join(sorted(wrong)[:_SHOWN])}{more}"
        )


def require_model(folder: Path) -> None:
    """Check that ``folder`` could be a model directory, before its files are looked at.

    Raises:
        ModelError: If it is missing, a file, an exported model, or holds pickle files only.
    """
    try:
        names = {path.name for path in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        if folder.is_file():
            hint = _NO_PICKLE if folder.suffix in _PICKLES else _FORMS
            raise ModelError(f"{folder}: is a file, but a model is a folder", hint) from None
        raise ModelError(f"{folder}: no such model", _FORMS) from error
    except OSError as error:
        raise cannot_read(folder, error) from error
    pickles = sorted(name for name in names if name.endswith(".pt"))
    if pickles and WEIGHTS not in names:
        raise ModelError(
            f"{folder}: holds {pickles[0]}, which is not opened as a model, because pickle can run code",
            _IMPORT,
        )
    if PARITY in names:
        raise ModelError(
            f"{folder}: is an exported model, for another program",
            f"give the model that {folder / PARITY} names, from which it was made",
        )
    if not names & {MANIFEST, WEIGHTS}:
        raise ModelError(f"{folder}: is not a model: no {WEIGHTS} and no {MANIFEST}", _IMPORT)


def _tags(folder: Path, record: dict[str, object]) -> int:
    """How many tags of languages and separators of sentences the model knows besides its vocabulary."""
    try:
        metadata = metadata_of(record)
        languages, context = Languages.from_metadata(metadata), ContextConfig.from_metadata(metadata)
    except ModelError as error:
        raise ModelError(f"{folder / CONFIG}: {error.message}") from None
    return context.separators + (0 if languages is None else languages.tags)


def _fitting_model(
    folder: Path, record: dict[str, object], shapes: dict[str, Shape], vocabularies: Vocabularies
) -> TranslationModel:
    """The model that ``config.json`` describes, built only after its shapes were found in the file."""
    config = recorded_config(record, folder)
    if max(config.stack(side).layers for side in config.sides) > len(shapes):
        raise ModelError(f"{folder / WEIGHTS}: has {len(shapes)} tensors, and {CONFIG} names more layers")
    tags = _tags(folder, record)
    named = (record.get("source_vocabulary"), record.get("target_vocabulary"))
    of_language = config.is_decoder_only and named[0] == 0  # a language model reads no source
    source = 0 if of_language else vocabularies.source.size + tags
    sizes = (source, vocabularies.target.size + tags)
    if sizes != named:
        raise ModelError(f"{folder}: vocabulary/ and tags make {sizes} entries, but {CONFIG} names {named}")
    languages = len(language_names(metadata_of(record)))
    if config.languages.used and not languages:
        raise ModelError(f"{folder / CONFIG}: has parameters of each target language, but names no languages")
    # On the meta device nothing is allocated, so a configuration of absurd sizes is refused for free.
    build = partial(build_model, config, *sizes, languages=languages)
    expected = model_parameters(outline(config, build))
    check_fit(folder / WEIGHTS, shapes, {name: tuple(value.shape) for name, value in expected.items()})
    # What is drawn would be overwritten, but a part of another package may have values that no file has.
    drawing = own_random_numbers(torch.device("cpu")) if plugins_of(config) else SkipInitialValues()
    with drawing:
        return build()
