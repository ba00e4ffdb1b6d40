"""A trained model from Python: it translates or continues text, scores, samples, and can be analysed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from deepwire.checkpoint.store import require_translation
from deepwire.config.counts import require_int
from deepwire.data.data_config import TextConfig
from deepwire.data.prepare.packing import documents_of
from deepwire.decoding.decoding_config import all_of_sampling, with_settings
from deepwire.decoding.language_model import GeneratedText, TextGenerator, TextScore, TextScorer, text_scorer
from deepwire.decoding.model_loading import (
    load_models,
    longest_source,
    model_names,
    require_learned,
    translator_of,
)
from deepwire.decoding.shortlist import ShortlistChoice
from deepwire.decoding.translation_io import checked_texts
from deepwire.decoding.translator import Translator
from deepwire.errors import LogFn, ModelError, UsageError
from deepwire.evaluation.texts import parse_direction

if TYPE_CHECKING:
    from deepwire.lab.finding import Finding


class Model(Translator):
    """A trained model, or several as an ensemble, as `deepwire.load` gives it.

    It translates; or if it is a language model, it continues texts and scores them.

    Attributes:
        names: The MODEL names that it was loaded by.
        text: What the documents of a language model are; None: it translates.
        positions: Tokens whose positions it has learned; None: there is no end.
    """

    names: tuple[str, ...]
    text: TextConfig | None
    positions: int | None

    @classmethod
    def named(
        cls,
        translator: Translator,
        names: Sequence[str],
        text: TextConfig | None = None,
        positions: int | None = None,
    ) -> Model:
        """A translator that knows the names of its models; nothing is copied."""
        model = cls.__new__(cls)
        vars(model).update(vars(translator), names=tuple(names), text=text, positions=positions)
        return model

    def with_search(self, **settings: object) -> Self:
        """The same models with other decoding settings, such as `beam=8`; nothing is copied.

        Args:
            settings: Keys of the section `decoding` of a run file; None is null where a setting may be null,
                such as `sampling`, and leaves any other as it is.

        Raises:
            UsageError: There is no such setting, it is impossible here, or the models have learned fewer
                positions than `max_source_length` needs.
        """
        other = super().with_search(**settings)
        longest = longest_source(self.positions, self._source_bos, self.languages)
        require_learned(other.config, self.positions, longest)
        return other

    def _require_translation(self) -> None:
        require_translation(self.names[0], {"text": self.text})

    def _require_text(self) -> TextConfig:
        if self.text is None:
            raise ModelError(
                f"{self.names[0]}: translates, and is no language model",
                "train one with task: language_model; deepwire score scores translations",
            )
        return self.text

    def generate(
        self,
        prompts: Iterable[str] = ("",),
        *,
        max_length: int | None = None,
        beam: int | None = None,
        sampling: Mapping[str, object] | None = None,
    ) -> list[str]:
        """Continue each prompt to a text of a language model: the prompt and what follows it.

        Args:
            prompts: How the texts begin; an empty one lets the model begin.
            max_length: Most subwords behind a prompt; default: `decoding.max_length_extra`.
            beam: Hypotheses of beam search; 1 = greedy. Default: greedy.
            sampling: Draw at random: `temperature`, `top_k`, `top_p` and `seed`; `{}` draws from all.
                Default: the model's `decoding.sampling`.

        Raises:
            ModelError: It is no language model.
            UsageError: A setting is impossible, a prompt has several lines, and the model knows only one, or
                a text may have more subwords than the model has learned positions.
        """
        texts = self.generated(prompts, max_length=max_length, beam=beam, sampling=sampling)
        return [each.text for each in texts]

    def generated(
        self,
        prompts: Iterable[str],
        *,
        max_length: int | None = None,
        beam: int | None = None,
        sampling: Mapping[str, object] | None = None,
    ) -> Iterator[GeneratedText]:
        """`generate` in constant memory, with the probability of each text; errors are the same."""
        text = self._require_text()
        prompts = checked_texts(prompts, lines=text.unit == "lines")
        if beam is not None and sampling is not None:
            raise UsageError("a beam is for searching, and sampling draws texts", "leave out one of them")
        changes: dict[str, object] = {"n_best": 1}
        if sampling is not None:
            changes["sampling"] = all_of_sampling(sampling)
        elif beam is not None or self.config.sampling is None:
            changes |= {"beam": 1 if beam is None else beam, "sampling": None}
        config = with_settings(self.config, changes)
        if config.sampling is not None and config.sampling.mbr:
            raise UsageError("sampling.mbr chooses among translations, and this is a language model")
        limit = (
            config.max_length_extra
            if max_length is None
            else require_int(max_length, "max_length", 1, most=100_000)
        )
        generator = TextGenerator(
            self.model, self.vocabularies.target, text, config, limit, self.device, self.positions
        )
        return generator.texts(prompts)

    def perplexity(
        self,
        lines: Iterable[str],
        *,
        context: int | None = None,
        stride: int | None = None,
        joined: bool = False,
    ) -> TextScore:
        """Perplexity of a text by a language model: per token, word and byte.

        Args:
            lines: The lines of the text; an empty one ends a document of several lines.
            context: Most tokens that the model reads at once; default: the block that it was trained with.
            stride: Longer documents are read in windows that advance by so many tokens; default: half of
                `context`. A smaller one takes longer, and gives each token more to see.
            joined: Let documents see those before them, as in training; else each is scored on its own.

        Raises:
            ModelError: It is no language model.
            UsageError: A setting is impossible, or there is no text.
        """
        scorer = self._text_scorer(context, stride)
        documents = documents_of(checked_texts(lines, lines=True), scorer.text.unit)
        score = scorer.joined(documents) if joined else sum(scorer.scores(documents), TextScore())
        if not score.documents:
            raise UsageError("no text to score: no line that is not empty")
        return score

    def document_scores(
        self, lines: Iterable[str], *, context: int | None = None, stride: int | None = None
    ) -> Iterator[TextScore]:
        """The score of each document, on its own; arguments and errors as in `perplexity`."""
        scorer = self._text_scorer(context, stride)
        return scorer.scores(documents_of(checked_texts(lines, lines=True), scorer.text.unit))

    def _text_scorer(self, context: int | None, stride: int | None) -> TextScorer:
        return text_scorer(self, self._require_text(), context, stride, self.positions)

    def __repr__(self) -> str:
        return f"Model({', '.join(map(repr, self.names))}, device={str(self.device)!r})"

    def analyze(self, analysis: str, **options: object) -> Finding:
        """Run an analysis of the model; see docs/howto/analyses.md. The model is read anew, in float32.

        Args:
            analysis: ``weights``, ``gates``, ``similarity``, or of a run directory ``gradients``, ``signal``,
                ``linearise``.
            options: Of the analysis: ``sentences=100``, ``direction="de-en"``, ``sides="encoder"``, or
                ``source="test.de", reference="test.en"``.

        Raises:
            UsageError: There is no such analysis or option, or the model has nothing that it looks at.
            DataError, ModelError: What it needs cannot be read.
        """
        if len(self.names) != 1:
            raise UsageError("an ensemble cannot be analysed", "load one model")
        analyse = _analysis(analysis)
        options = {name: _option(name, value) for name, value in options.items()}
        try:
            inspect.signature(analyse).bind(self.names[0], **options)
        except TypeError as error:
            hint = f"see the options of 'deepwire analyze {analysis}'"
            raise UsageError(f"{analysis}: {error}", hint) from None
        return analyse(self.names[0], **options)


def _option(name: str, value: object) -> object:
    if name in ("source", "reference") and isinstance(value, str):
        return Path(value)
    if name == "direction" and value is not None:
        return parse_direction(str(value))
    return (value,) if name == "sides" and isinstance(value, str) else value


def _analysis(name: object) -> Callable[..., Finding]:
    try:  # an add-on on which nothing here depends
        known: dict[str, str] = import_module("deepwire.lab").OF_A_MODEL
    except ModuleNotFoundError as error:
        raise UsageError("this copy of deepwire has no analyses: deepwire.lab is missing") from error
    if not isinstance(name, str) or name not in known:
        raise UsageError(f"no analysis {name!r} of a loaded model", f"choose one of {', '.join(known)}")
    module, _, function = known[name].partition(":")
    return cast("Callable[..., Finding]", getattr(import_module(module), function))


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
    loaded = load_models(names, device, precision, settings or {})
    translator = translator_of(loaded, weights=weights, warn=warn, shortlist=shortlist, terms=terms)
    return Model.named(translator, names, loaded.text, loaded.positions)
