"""Loading models for decoding: compatible models on a device, in a precision, and a `Translator` of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import ValidationError

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import LoadedModel, load_model, require_translation
from deepwire.config.counts import shown
from deepwire.data.context import NO_CONTEXT, ContextConfig
from deepwire.data.data_config import TextConfig
from deepwire.data.languages import Languages, named_direction
from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.models import EnsembleMember
from deepwire.decoding.shortlist import ShortlistChoice, load_shortlist
from deepwire.decoding.terms import Terminology
from deepwire.decoding.translator import Translator
from deepwire.errors import LogFn, ModelError, UsageError
from deepwire.model.captured_steps import capturing
from deepwire.model.embedding import positions_learned
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.packed_linear import Packing, has_kernels, pack_linears
from deepwire.ops.precision import autocast_dtype
from deepwire.ops.process import choose_float32_products

T = TypeVar("T")

# Number format of the model, and of its packed weights.
PRECISIONS: Mapping[str, tuple[torch.dtype, Packing]] = {
    "fp32": (torch.float32, "none"),
    "bf16": (torch.bfloat16, "none"),
    "fp16": (torch.float32, "fp16"),
    "int8": (torch.float32, "int8"),
}


@dataclass(frozen=True)
class LoadedModels:
    """Models with one vocabulary, and the settings to translate with."""

    models: tuple[LoadedModel, ...]
    config: DecodingConfig
    device: torch.device
    precision: str
    """One of `PRECISIONS`."""
    source_bos: bool
    languages: Languages | None
    """The languages of models with several directions."""
    context: ContextConfig = NO_CONTEXT
    """The sentences of a document that they read in front of one."""
    text: TextConfig | None = None
    """The documents of language models; None: the models translate."""
    positions: int | None = None
    """Tokens whose positions all of them have learned; None: there is no end."""

    def require_translation(self) -> None:
        """Require that the models translate."""
        require_translation(self.models[0].folder, self.models[0].metadata)


def load_models(
    names: Sequence[str | Path], device: str | None, precision: str, settings: Mapping[str, object]
) -> LoadedModels:
    """Load models that are to act as one.

    In float32 this also takes the faster of the CPU's true float32 products, for the whole process, where
    `deepwire.configure_process` has allowed it.

    Args:
        names: MODEL names: run directories, `RUN@avg5`, model directories.
        device: `cpu`, `cuda`, `cuda:1`; `auto` or None = a GPU if there is one.
        precision: `fp32`, `bf16`; on a CPU also `fp16` and `int8`, the format of the weights alone; or
            `auto` = see `fastest_precision`.
        settings: Decoding settings that replace those stored with the first model.

    Raises:
        ModelError: A model is missing or damaged, or the vocabularies differ.
        UsageError: A setting is impossible, or the device is not there.
    """
    if not names:
        raise UsageError("no model to load", "name at least one")
    chosen_device = pick_device(device)
    precision = fastest_precision(chosen_device) if precision == "auto" else precision
    kind, packing = number_formats(chosen_device, precision)
    if kind is torch.float32:
        choose_float32_products()
    models = tuple(load_model(find_model(str(name)), chosen_device, kind) for name in names)
    for model in models:
        pack_weights(model.model, packing)
    first = models[0]
    for other in models[1:]:
        _require_compatible(first, other)
    config = with_settings(stored_config(first), settings) if settings else stored_config(first)
    bos, languages = _source_bos(first), languages_of(first)
    told = bos, languages, context_of(first), text_of(first)
    learned = min((n for model in models if (n := positions_learned(model.model)) is not None), default=None)
    if (longest := longest_source(learned, bos, languages)) is not None:
        if settings.get("max_source_length") is not None:
            require_learned(config, learned, longest)
        # Longer lines are translated in pieces.
        config = config.model_copy(update={"max_source_length": min(config.max_source_length, longest)})
    return LoadedModels(models, config, chosen_device, precision, *told, learned)


def longest_source(positions: int | None, source_bos: bool, languages: Languages | None) -> int | None:
    """Most subwords of a line, where so many positions are learned; None where `positions` is.

    EOS stands behind them, and BOS and the name of a language may stand in front.
    """
    beside = 1 + source_bos + (languages is not None and languages.tags_source)
    return None if positions is None else max(1, positions - beside)


def require_learned(config: DecodingConfig, positions: int | None, longest: int | None) -> None:
    """Require that lines are cut where learned positions end: all behind would be read as the last."""
    if longest is not None and config.max_source_length > longest:
        raise UsageError(
            f"max_source_length={config.max_source_length}: the model has learned {positions} positions, "
            f"enough for lines of up to {longest} subwords",
            f"set it to {longest} or less",
        )


def pick_device(name: str | None) -> torch.device:
    """The device of that name; `auto` and None are the first GPU if there is one, otherwise the CPU."""
    if name is None or name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"unknown device {name!r}", "use auto, cpu, cuda or cuda:1") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device {name!r} is not supported", "use auto, cpu, cuda or cuda:1")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise UsageError(f"device {name!r} is not there: {count} GPUs found", "use auto or cpu")
    return device


def fastest_precision(device: torch.device) -> str:
    """The precision that `auto` stands for: the fastest that keeps translations and their scores.

    `bf16` where the device has units for it; on other CPUs `fp16`, whose weights are read in half the time,
    where there are kernels for it (x86); otherwise `fp32`.
    """
    if autocast_dtype(device, "auto") is torch.bfloat16:
        return "bf16"
    return "fp16" if device.type == "cpu" and has_kernels("fp16") else "fp32"


def number_formats(device: torch.device, precision: str) -> tuple[torch.dtype, Packing]:
    """Format of the model, and of weights that are packed for decoding."""
    if precision == "auto":
        precision = fastest_precision(device)
    if precision not in PRECISIONS:
        *names, last = PRECISIONS
        raise UsageError(f"unknown precision {precision!r}", f"use auto, {', '.join(names)} or {last}")
    kind, packing = PRECISIONS[precision]
    if packing != "none" and device.type != "cpu":
        raise UsageError(f"precision {precision} is for CPUs, not {device}", "use auto, fp32 or bf16")
    return kind, packing


def pack_weights(model: TranslationModel, packing: Packing) -> None:
    """Lay the weights of a model out for decoding, in place."""
    try:
        pack_linears(model, packing)
    except ValueError as error:
        raise UsageError(f"precision {packing}: {error}", "use --precision fp32") from None


def _require_compatible(first: LoadedModel, other: LoadedModel) -> None:
    differences = {
        "have different vocabularies": first.vocabularies.digest != other.vocabularies.digest,
        "differ in data.source_bos": _source_bos(first) != _source_bos(other),
        "differ in task or data.text.unit": _unit_of(first) != _unit_of(other),
        "differ in data.context": context_of(first) != context_of(other),
        "have different directions or tags": _directions_of(first) != _directions_of(other),
    }
    for difference in (difference for difference, is_there in differences.items() if is_there):
        raise ModelError(
            f"{first.folder} and {other.folder} {difference}",
            "models act together only if they were trained on one prepared corpus for the same",
        )
    named = {named_direction(model.metadata) for model in (first, other)} - {None}
    if len(named) > 1:
        ways = " and ".join(sorted(map(str, named)))
        raise ModelError(
            f"{first.folder} and {other.folder} translate {ways}", "name models of one direction"
        )


def _unit_of(model: LoadedModel) -> str | None:
    text = text_of(model)
    return None if text is None else text.unit


def _directions_of(model: LoadedModel) -> object:
    languages = languages_of(model)
    return None if languages is None else languages.unordered


def languages_of(model: LoadedModel) -> Languages | None:
    """The languages that a stored model says it has; None with one direction."""
    return _read_from(model, Languages.from_metadata)


def text_of(model: LoadedModel) -> TextConfig | None:
    """The documents of a stored language model; None where it translates."""
    if model.model.source_vocabulary:
        return None
    try:
        return TextConfig.model_validate(model.metadata.get("text"))
    except ValidationError as error:
        raise ModelError(f"{model.folder}: stored description of its text: {_first_error(error)}") from error


def context_of(model: LoadedModel) -> ContextConfig:
    """The sentences of a document that a stored model says it reads in front of one."""
    return _read_from(model, ContextConfig.from_metadata)


def _read_from(model: LoadedModel, read: Callable[[Mapping[str, object]], T]) -> T:
    """The value that `read` gives for the metadata of a model; an error says whose they are."""
    try:
        return read(model.metadata)
    except ModelError as error:
        raise ModelError(f"{model.folder}: {error.message}", error.hint) from None


def _source_bos(model: LoadedModel) -> bool:
    return model.metadata.get("source_bos") is True


def stored_config(model: LoadedModel) -> DecodingConfig:
    """The settings stored with the model."""
    stored = model.metadata.get("decoding", {})
    if not isinstance(stored, dict):
        raise ModelError(f"{model.folder}: the stored decoding settings are damaged")
    try:
        return DecodingConfig.model_validate(stored)
    except ValidationError as error:
        raise ModelError(f"{model.folder}: stored decoding settings: {_first_error(error)}") from error


def _first_error(error: ValidationError) -> str:
    detail = error.errors()[0]
    where = ".".join(str(part) for part in detail["loc"])
    text = detail["msg"].removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def load(
    models: str | PathLike[str] | Sequence[str | PathLike[str]],
    device: str | None = "auto",
    precision: str = "auto",
    *,
    settings: Mapping[str, object] | None = None,
    weights: Sequence[float] | None = None,
    warn: LogFn | None = None,
    shortlist: ShortlistChoice = False,
    terms: str | PathLike[str] | None = None,
) -> Translator:
    """Load models as `deepwire.load` does, without their names and analyses; the arguments are the same.

    Raises:
        ModelError: A model or the shortlist is missing or damaged, or the vocabularies differ, or it is a
            language model.
        UsageError: A setting is impossible, or there is no shortlist or no such device.
    """
    loaded = load_models(model_names(models), device, precision, settings or {})
    loaded.require_translation()
    return translator_of(loaded, weights=weights, warn=warn, shortlist=shortlist, terms=terms)


def translator_of(
    loaded: LoadedModels,
    *,
    weights: Sequence[float] | None = None,
    warn: LogFn | None = None,
    shortlist: ShortlistChoice = False,
    terms: str | PathLike[str] | None = None,
) -> Translator:
    """A translator of loaded models; the other arguments and errors are those of `load`."""
    if not isinstance(terms, str | PathLike | None):
        raise UsageError(f"terms: must be the path of a file, not {shown(terms)}")
    first = loaded.models[0]
    warn = logging.getLogger("deepwire").warning if warn is None else warn
    graphs = loaded.config.cuda_graphs
    members: list[EnsembleMember] = [
        capturing(stored.model, loaded.device, graphs) for stored in loaded.models
    ]
    return Translator(
        members,
        first.vocabularies,
        loaded.config,
        device=loaded.device,
        source_bos=loaded.source_bos,
        weights=weights,
        warn=warn,
        languages=loaded.languages,
        context=loaded.context,
        precision=loaded.precision,
        shortlist=load_shortlist(shortlist, first.folder, first.vocabularies) if shortlist else None,
        terms=None if terms is None else Terminology.read(Path(terms), warn),
        direction=None if loaded.languages is not None else named_direction(first.metadata),
    )


def model_names(models: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[str]:
    """The MODEL names that `load` is given."""
    names: object = [models] if isinstance(models, str | PathLike) else models
    if not isinstance(names, Sequence) or not all(isinstance(name, str | PathLike) for name in names):
        raise UsageError(
            f"not names of models but {type(models).__name__}", 'give one or several: load("runs/demo")'
        )
    return [fspath(name) for name in names]
