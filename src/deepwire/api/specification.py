"""Builds the `TrainingSpec` of a run from its settings and its prepared text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from deepwire.api.prepare import configured_vocabulary_size
from deepwire.checkpoint.model_files import MANIFEST
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.run_directory import RunDirectory, require_folder
from deepwire.checkpoint.store import read_metadata
from deepwire.data.prepare.prepared import Prepared
from deepwire.data.text.corpus import require_files
from deepwire.data.vocabulary import Vocabularies
from deepwire.decoding.alignment import best_attention, stored_pairs
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.translator import Translator
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DataError, UsageError
from deepwire.evaluation.metric import Metric
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.evaluation.texts import named_target
from deepwire.model.build import build_model
from deepwire.model.translation_model import TranslationModel
from deepwire.runfile import LoadedRunFile, RunFile
from deepwire.training.device import choose_device
from deepwire.training.spec import TrainingSpec, TranslateTexts, WarmStartReport
from deepwire.training.start_from import start_from


class ValidationScores:
    """Scores translations of the validation set; a ``deepwire.training.spec.ScoreTexts``.

    Each language has its own metrics; ``""`` is an unknown one.

    Attributes:
        notes: What to know of the metrics, for the log, one line each.

    Raises:
        UsageError: A tokenizer or a metric of another package is not installed.
    """

    def __init__(self, names: Sequence[str], tokenize: str | None, languages: Sequence[str]) -> None:
        self._names, self._languages = names, languages
        tokenizers = {} if tokenize is None else {"": tokenize}
        self._metrics: dict[str, list[Metric]] = {language: [] for language in languages}
        self.notes: list[str] = []
        for name in names:
            metrics = LanguageMetrics([name], tokenizers)
            try:
                for language in languages:
                    self._metrics[language].extend(metrics.of(language))
            except UsageError as error:
                key = "metrics" if tokenize is None or name != "bleu" else "tokenize"
                raise UsageError(f"training.validation.{key}: {error.message}", error.hint) from error
            self.notes.extend(metrics.notes)

    def __call__(
        self,
        metric: str,
        translations: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
        /,
        *,
        language: str = "",
    ) -> float:
        """Scores translations into a language; with one language it need not be named."""
        scorer = self._metrics[language or self._languages[0]][self._names.index(metric)]
        return scorer.score_of(scorer.statistics(translations, references, sources), 1).value

    @property
    def signatures(self) -> tuple[str, ...]:
        """The signature of each metric, with its languages where it does not apply to all."""
        languages_of: dict[str, list[str]] = {}
        for language, metrics in self._metrics.items():
            for metric in metrics:
                languages_of.setdefault(f"{metric.name}|{metric.signature(1)}", []).append(language)
        return tuple(
            signature if len(languages) == len(self._metrics) else f"{signature} ({', '.join(languages)})"
            for signature, languages in languages_of.items()
        )


_DEFAULT_VOCABULARY_SIZE = 32_000


def processes_of(config: RunFile) -> int:
    """Number of processes to train with on the cores of this machine, if torchrun started none."""
    from deepwire.training.run import processes_wanted

    return processes_wanted(config.training, config.model.d_model, lambda: _approximate_parameters(config))


def _approximate_parameters(config: RunFile) -> int:
    """Number of parameters of the model; before preparation the vocabulary may be of unknown size."""
    from deepwire.model.meta_init import meta_model

    size = configured_vocabulary_size(config.data) or _DEFAULT_VOCABULARY_SIZE
    languages = 0 if config.data.languages is None else len(config.data.languages.names)
    model = meta_model(config.model, *config.vocabulary_sizes(size), languages)
    return sum(parameter.numel() for parameter in model.parameters())


def require_startable(loaded: LoadedRunFile, processes: ProcessGroup, *, begins: bool) -> None:
    """Raises errors that would otherwise end the run after preparation of the text, which may take hours.

    Each process calls this; `begins` says whether the run is new.

    Raises:
        UsageError: The run directory is a file or a model, the device is missing, or the model has
            parameters for each language but the run has only one direction.
        ModelError: The model or encoder to start from is missing.
    """
    if loaded.config.model.languages.used and loaded.config.data.languages is None:
        where = next(at for key, at in loaded.origins.items() if key.startswith("model.languages"))
        raise UsageError(
            f"{where}: model.languages: this is a run of one source and one target language",
            "name several in data.directions, or leave model.languages out",
        )
    require_folder(loaded.run_directory, "run")
    if (loaded.run_directory / MANIFEST).exists():
        raise UsageError(f"run: {loaded.run_directory} is a model", "name another folder with run=FOLDER")
    _validation_scores(loaded.config)
    config = loaded.config.training
    choose_device(config.device, processes)
    if begins and config.start_from is not None:
        model = config.start_from.model  # its folder need not be visible to other processes
        processes.run_on_main_first(lambda: read_metadata(find_model(model)) if processes.main else None)
    if begins and config.pretrained is not None:
        from deepwire.convert.importers.pretrained import require_encoder

        encoder = config.pretrained.encoder
        processes.run_on_main_first(lambda: require_encoder(encoder) if processes.main else None)


def training_spec(loaded: LoadedRunFile, prepared: Prepared, changes: Sequence[str] = ()) -> TrainingSpec:
    """The specification of a training run; `changes` are settings that it goes on with, one line each."""
    config = loaded.config
    scores = _validation_scores(config)
    return TrainingSpec(
        run=RunDirectory(loaded.run_directory),
        config=config.training,
        seed=config.seed,
        resolved=dict(loaded.resolved),
        build=lambda: build_model(config.model, *prepared.model_sizes),
        begin=_warm_start(config, prepared),
        prepared=prepared,
        source_bos=config.data.source_bos,
        sampling=config.data.vocabulary.sampling,
        metadata=model_metadata(config, prepared),
        translate=_validation_translator(loaded),
        score=scores,
        examine=_alignment_search(config, prepared),
        signatures=() if scores is None else scores.signatures,
        notes=tuple(_notes(config, scores, prepared)),
        user_config=loaded.text,
        changes=tuple(changes),
    )


def _warm_start(config: RunFile, prepared: Prepared) -> Callable[[TranslationModel], WarmStartReport] | None:
    """A function that loads parameters of another model into a new one; None if the run starts untrained."""
    start, pretrained = config.training.start_from, config.training.pretrained
    if start is not None:
        return partial(
            start_from,
            start,
            vocabularies=prepared.vocabularies,
            source_bos=config.data.source_bos,
            languages=prepared.languages,
            context=prepared.context,
        )
    if pretrained is not None:
        from deepwire.convert.importers.pretrained import start_pretrained

        return partial(start_pretrained, pretrained, vocabularies=prepared.vocabularies)
    return None


def model_metadata(config: RunFile, prepared: Prepared) -> dict[str, object]:
    """The metadata stored with a model: languages, and default decoding settings."""
    languages = prepared.languages
    direction = {"source": config.data.source, "target": config.data.target}
    pairs = {each.name: each.pairs for each in prepared.mix}
    return {
        **(direction if languages is None else languages.to_metadata()),
        **({} if config.data.text is None else {"text": config.data.text.model_dump(mode="json")}),
        **({"training_pairs": pairs} if languages else {}),
        "source_bos": config.data.source_bos,
        **config.data.context.to_metadata(),
        "decoding": _decoding(config).model_dump(mode="json"),
    }


def _decoding(config: RunFile) -> DecodingConfig:
    """Default decoding settings of the model; guided alignment sets the head for alignments."""
    guided, chosen = config.training.guided_alignment, config.decoding.alignment
    if guided is None or chosen.layer is not None or chosen.head is not None:
        return config.decoding
    layer = guided.layer_of(config.model.decoder.layers)
    changes = {"layer": layer, "head": guided.head, "step": guided.step}
    return config.decoding.model_copy(update={"alignment": chosen.model_copy(update=changes)})


def _alignment_search(
    config: RunFile, prepared: Prepared
) -> Callable[[TranslationModel], dict[str, object]] | None:
    """The function that finds the attention head to align with; None where settings name it."""
    decoding, store = _decoding(config), prepared.valid or prepared.train
    if decoding.alignment.layer or decoding.alignment.head or store.packed:
        return None

    def examine(model: TranslationModel) -> dict[str, object]:
        bos, languages = config.data.source_bos, prepared.languages
        pairs = stored_pairs(store, prepared.vocabularies, languages, bos=bos)
        best = best_attention(model, pairs, next(model.parameters()).device)
        if best is None:
            return {}
        alignment = decoding.alignment.model_copy(update=best._asdict())
        return {"decoding": decoding.model_copy(update={"alignment": alignment}).model_dump(mode="json")}

    return examine


def _notes(config: RunFile, scores: ValidationScores | None, prepared: Prepared) -> Iterator[str]:
    if config.data.aligned and config.training.guided_alignment is None:
        yield "training text has alignments, but training.guided_alignment is not set: nothing learns them"
    try:
        require_files(config.data, "test")
    except DataError as error:
        yield f"data.test: {error.message}: training does without, evaluate needs it"
    sides, known = (prepared.train.source_side, prepared.train.target_side), config.model.max_length
    longest = max(side.longest for side in sides)
    if config.model.positions.has_rows and not prepared.train.packed and longest + 2 > known:
        yield f"model.max_length is {known}, and a line has {longest} subwords: the last share a position"
    if scores is not None:
        yield from scores.notes


def _validation_translator(loaded: LoadedRunFile) -> TranslateTexts:
    """Translates the validation set with the run's decoding settings and the beam of validation."""
    settings = {"beam": loaded.config.training.validation.beam, "n_best": 1, "sampling": None}
    decoding = loaded.config.decoding.model_copy(update=settings)

    def translate(
        model: TranslationModel, vocabularies: Vocabularies, texts: Sequence[str], /, *, to: str = ""
    ) -> list[str]:
        translator = Translator(
            [model],
            vocabularies,
            decoding,
            device=next(model.parameters()).device,
            source_bos=loaded.config.data.source_bos,
            languages=loaded.config.data.languages,
            context=loaded.config.data.context,
        )
        return translator.translate(texts, to=to)

    return translate


def _validation_scores(config: RunFile) -> ValidationScores | None:
    """The scorer of validation translations; None if they are not scored."""
    data, validation = config.data, config.training.validation
    if not validation.text_metrics or data.valid is None:
        return None
    named = named_target({"target": data.target})
    targets = [named] if data.languages is None else [each.target for each in data.languages.directions]
    return ValidationScores(validation.text_metrics, validation.tokenize, list(dict.fromkeys(targets)))
