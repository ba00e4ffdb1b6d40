"""A trained model from Python: it translates, scores, samples, and can be analysed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, cast

from deepwire.analysis import OF_A_MODEL, STANDARD
from deepwire.decoding.model_inputs import Warn
from deepwire.decoding.model_loading import load as load_translator
from deepwire.decoding.model_loading import model_names
from deepwire.decoding.shortlist import ShortlistChoice
from deepwire.decoding.translator import Translator
from deepwire.errors import UsageError
from deepwire.model.decoder_state import DecoderState

if TYPE_CHECKING:
    from deepwire.analysis.report.finding import Finding


class Model(Translator[DecoderState]):
    """A trained model, or several as an ensemble, as `deepwire.load` gives it.

    Attributes:
        names: The MODEL names that it was loaded by.
    """

    names: tuple[str, ...]

    @classmethod
    def named(cls, translator: Translator[DecoderState], names: Sequence[str]) -> Model:
        """A translator that knows the names of its models; nothing is copied."""
        model = cls.__new__(cls)
        vars(model).update(vars(translator), names=tuple(names))
        return model

    def __repr__(self) -> str:
        return f"Model({', '.join(map(repr, self.names))}, device={str(self.device)!r})"

    def analyze(self, analysis: str, **options: object) -> Finding:
        """What the model does inside; see docs/howto/analyses.md. The model is read anew, in float32.

        Args:
            analysis: ``weights``, ``gates``, or of a run directory ``gradients`` or ``signal``.
            options: Of the analysis: ``layer=3``, or ``source="test.de", reference="test.en"``.

        Raises:
            UsageError: There is no such analysis or option, or the model has nothing that it looks at.
            DataError, ModelError: What it needs cannot be read.
        """
        if len(self.names) != 1:
            raise UsageError("an ensemble cannot be analysed", "load one model")
        analyse = _analysis(analysis)
        try:
            inspect.signature(analyse).bind(self.names[0], **options)
        except TypeError as error:
            hint = f"see the options of 'deepwire analyze {analysis}'"
            raise UsageError(f"{analysis}: {error}", hint) from None
        return analyse(self.names[0], **options)

    def analyses(self) -> Iterator[Finding]:
        """The findings of all analyses that apply to the model and need nothing more."""
        from deepwire.analysis.subject.model_and_text import NotApplicableError

        for analysis in STANDARD:
            try:
                yield self.analyze(analysis)
            except (NotApplicableError, UsageError):
                continue


def _analysis(name: str) -> Callable[..., Finding]:
    if name not in OF_A_MODEL:
        raise UsageError(f"no analysis {name!r} of a loaded model", f"choose one of {', '.join(OF_A_MODEL)}")
    module, _, function = OF_A_MODEL[name].partition(":")
    return cast("Callable[..., Finding]", getattr(import_module(module), function))


def load(
    models: str | PathLike[str] | Sequence[str | PathLike[str]],
    device: str | None = "auto",
    precision: str = "auto",
    *,
    settings: Mapping[str, object] | None = None,
    weights: Sequence[float] | None = None,
    warn: Warn | None = None,
    shortlist: ShortlistChoice = False,
    terms: str | PathLike[str] | None = None,
) -> Model:
    """Load one model, or several as an ensemble, for translation.

    Nothing in the process is changed, unless `deepwire.configure_process` has allowed it to choose how
    float32 products are computed.

    Args:
        models: A MODEL name (run directory, `RUN@avg5`, model directory) or several; also a `Run`.
        device: `cpu`, `cuda`, `cuda:1`; `auto` = a GPU if there is one.
        precision: `fp32`, `bf16`; on a CPU also `fp16` and `int8`, the format of the weights alone; or `auto`
            = the fast one of the device that keeps translations: `bf16`, `fp16` or `fp32`.
        settings: Decoding settings that replace those stored with the model: `{"beam": 8}`.
        weights: Weights of the models in an ensemble; equal when left out.
        warn: Receives warnings, one line each; default: the log of `deepwire`.
        shortlist: True = translate with the shortlist that `deepwire shortlist` has stored with the first
            model; "seen" = only with subwords that the training text of the target language has, as
            `deepwire shortlist --seen` has stored them; or the folder of one.
        terms: File of terms, SOURCE<tab>TARGET in each line, which translations must have.

    Raises:
        ModelError: A model or the shortlist is missing or damaged, or the vocabularies differ.
        UsageError: A setting is impossible, or there is no shortlist or no such device.
        DataError: The file of terms cannot be read, or a line of it is no term.
    """
    names = model_names(models)
    translator = load_translator(
        names,
        device,
        precision,
        settings=settings,
        weights=weights,
        warn=warn,
        shortlist=shortlist,
        terms=terms,
    )
    return Model.named(translator, names)
