"""From MODEL names to a `Translator`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath

from deepwire.decoding.cuda_graphs import CudaGraphCapture, CudaGraphModel
from deepwire.decoding.model_inputs import Warn
from deepwire.decoding.model_loading import load_models
from deepwire.decoding.shortlist import ShortlistChoice, load_shortlist
from deepwire.decoding.step_models import EnsembleMember
from deepwire.decoding.translator import Translator
from deepwire.model.decoder_state import DecoderState


def load(
    models: str | PathLike[str] | Sequence[str | PathLike[str]],
    device: str | None = "auto",
    precision: str = "auto",
    *,
    settings: Mapping[str, object] | None = None,
    weights: Sequence[float] | None = None,
    warn: Warn | None = None,
    shortlist: ShortlistChoice = False,
) -> Translator[DecoderState]:
    """Load one model, or several as an ensemble, for translation.

    Args:
        models: A MODEL name (run directory, `RUN@avg5`, model directory) or several.
        device: `cpu`, `cuda`, `cuda:1`; `auto` = a GPU if there is one.
        precision: `fp32`, `bf16`; on a CPU also `fp16` and `int8`, the format of the weights alone; or `auto`
            = the fast one of the device that keeps translations: `bf16`, `fp16` or `fp32`.
        settings: Decoding settings that replace those stored with the model: `{"beam": 8}`.
        weights: Weights of the models in an ensemble; equal when left out.
        warn: Receives warnings, one line each; default: the log of `deepwire`.
        shortlist: True = translate with the shortlist that `deepwire shortlist` has stored with the first
            model; "seen" = only with subwords that the training text of the target language has, as
            `deepwire shortlist --seen` has stored them; or the folder of one.

    Raises:
        ModelError: A model or the shortlist is missing or damaged, or the vocabularies differ.
        UsageError: A setting is impossible, or there is no shortlist or no such device.
    """
    names = model_names(models)
    loaded = load_models(names, device, precision, settings or {})
    first = loaded.models[0]
    members: list[EnsembleMember[DecoderState]] = [stored.model for stored in loaded.models]
    if loaded.config.cuda_graphs and loaded.device.type == "cuda":
        members = [CudaGraphModel(stored.model, CudaGraphCapture(loaded.device)) for stored in loaded.models]
    return Translator(
        members,
        first.vocabularies,
        loaded.config,
        device=loaded.device,
        source_bos=loaded.source_bos,
        weights=weights,
        warn=warn,
        languages=loaded.languages,
        shortlist=load_shortlist(shortlist, first.folder, first.vocabularies),
        direction=None if loaded.languages is not None else _direction(first.metadata),
    )


def _direction(metadata: Mapping[str, object]) -> tuple[str, str] | None:
    """The languages of a model with one direction; None where it does not say them."""
    source, target = metadata.get("source"), metadata.get("target")
    return (source, target) if isinstance(source, str) and isinstance(target, str) else None


def model_names(models: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[str]:
    """The MODEL names that `load` is given."""
    return [fspath(name) for name in ([models] if isinstance(models, str | PathLike) else models)]
