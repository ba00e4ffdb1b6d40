"""Settings of a run file that formats of other programs refuse (`export.must_be`); each is one function.

Nothing is trained yet, and no library of a format is needed: settings alone tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deepwire.data.data_config import DataConfig
from deepwire.model.config import ModelConfig
from deepwire.model.huggingface_class import huggingface_class
from deepwire.model.portability import IN_MARIAN, FormatName, not_in_ctranslate2, not_in_marian

_ANY = "onnx computes every model"
_GRAPHS: frozenset[FormatName] = frozenset({"onnx", "torch_export"})
_DECODERS = _GRAPHS | {"huggingface-code"}
_Refusal = Callable[[ModelConfig, DataConfig], str | None]


def export_refusal(formats: Sequence[FormatName], model: ModelConfig, data: DataConfig) -> str | None:
    """Which format refuses which setting; None if all can have the model."""
    for name in formats:
        if data.text is not None and name not in _GRAPHS:
            return f"{name} has no language models; {_ANY}"
        if model.is_decoder_only and name not in _DECODERS:
            return f"{name} does not compute model.architecture=decoder_only; {_ANY}"
        if data.context.used and name not in _GRAPHS:
            return f"{name} translates line by line, without data.context; {_ANY}"
        if (refused := _REFUSALS[name](model, data)) is not None:
            return refused
    return None


def _nothing(model: ModelConfig, data: DataConfig) -> None:
    """Every model can be had."""


def _ctranslate2(model: ModelConfig, data: DataConfig) -> str | None:
    setting = not_in_ctranslate2(model)
    if setting is None and data.languages is None:
        return None
    refused = "data.directions" if setting is None else f"model.{setting}"
    return f"ctranslate2 does not compute {refused}; {_ANY}"


def _argos(model: ModelConfig, data: DataConfig) -> str | None:
    if (refused := _ctranslate2(model, data)) is not None:
        return refused
    if not data.source_bos and data.vocabulary.joint:
        return None
    setting = "data.source_bos=true" if data.source_bos else "data.vocabulary.joint=false"
    return f"a package of Argos has no {setting}"


def _marian(model: ModelConfig, data: DataConfig) -> str | None:
    others = {
        "data.directions": data.languages is not None,
        "data.source_bos=true": data.source_bos,
    }
    if (setting := not_in_marian(model)) is not None:
        return f"Marian does not compute model.{setting}; {IN_MARIAN}"
    refused = next((name for name, used in others.items() if used), None)
    return None if refused is None else f"Marian does not compute {refused}; {IN_MARIAN}"


def _huggingface(model: ModelConfig, data: DataConfig) -> str | None:
    kind, refused = data.vocabulary.type, None
    try:
        huggingface_class(model)
    except ValueError as setting:
        refused = f"model.{setting}"
    if refused is None and data.source_bos:
        refused = "data.source_bos=true"
    if refused is None and kind not in ("bpe", "unigram", "existing"):
        refused = f"data.vocabulary.type={kind}"
    return None if refused is None else f"no class of transformers computes {refused}; {_ANY}"


_REFUSALS: Mapping[FormatName, _Refusal] = {
    "onnx": _nothing,
    "torch_export": _nothing,
    "huggingface-code": _nothing,
    "huggingface": _huggingface,
    "ctranslate2": _ctranslate2,
    "argos": _argos,
    "marian": _marian,
}
