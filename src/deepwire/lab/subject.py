"""The subject of analyses: a model by its name, text for it to read, and how well it translates that."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import ValidationError

from deepwire.checkpoint.model_files import fingerprint
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import LoadedModel, load_model, read_metadata
from deepwire.config.counts import counted
from deepwire.data.batches.batching import BatchSettings, StreamPosition, UpdateStream
from deepwire.data.data_config import TextConfig, Unit
from deepwire.data.languages import Direction
from deepwire.data.prepare.build import Progress
from deepwire.data.prepare.packing import document_ids, documents_of
from deepwire.data.prepare.prepared import Prepared, prepare
from deepwire.data.vocabulary import EOS, Vocabularies
from deepwire.decoding.alignment import AlignedPair
from deepwire.decoding.model_inputs import LanguageSelector, batches_by_length, pad_batch, target_language_ids
from deepwire.decoding.model_loading import LoadedModels, languages_of, load_models, pick_device
from deepwire.decoding.translator import Translator
from deepwire.errors import DataError, LogFn, ModelError, UsageError
from deepwire.evaluation.comparison import without_spaces
from deepwire.evaluation.metric import Metric, check_line_counts, reference_count
from deepwire.evaluation.metric_choice import LanguageMetrics, language_of
from deepwire.evaluation.texts import (
    SearchSettings,
    Text,
    data_section,
    named_target,
    read_text,
    selected_target,
    test_set,
    texts_of_run,
    usable_pairs,
)
from deepwire.io.regular_files import read_json
from deepwire.lab.finding import ModelSource
from deepwire.model.build import build_model
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.process import own_random_numbers, seed_random_numbers
from deepwire.runfile import RunFile, completed, load_run_file
from deepwire.training.device import DeviceBatch, DeviceUpdate, feed

BATCH_TOKENS = 1024
LONGEST = 256
"""Subwords after which a text is cut."""


def present(model: TranslationModel, sides: Sequence[Side]) -> list[Side]:
    """The sides among these that the model has a stack for; all of them where it has none of them."""
    return [side for side in sides if side in model.stacks()] or list(sides)


def repeating(model: TranslationModel) -> str:
    """Why layers of a model cannot be followed one after the other; nothing where they can."""
    for side, stack in model.stacks().items():
        if stack.repeats:
            return f"the middle layers of the {side} run in rounds (model.{side}.recurrence)"
    return ""


@dataclass(frozen=True)
class AnalysedModel:
    """A model under study, in evaluation mode."""

    name: str
    loaded: LoadedModel

    @property
    def source(self) -> ModelSource:
        """The model, for the provenance of a finding."""
        return model_source(self.name, self.loaded.folder)


def open_model(name: str, device: str = "cpu") -> AnalysedModel:
    """Load a MODEL name in float32.

    Raises:
        ModelError: There is no such model, or it is damaged.
        UsageError: There is no such device.
    """
    place = pick_device(device)
    return AnalysedModel(name, load_model(find_model(name), place))


def model_source(name: str, folder: Path | None = None) -> ModelSource:
    """The model that a MODEL name stands for, or the one in `folder`, for the provenance of a finding.

    Raises:
        ModelError: There is no such model, or its description is damaged.
    """
    folder = folder or find_model(name)
    update = read_metadata(folder).get("update")
    return ModelSource(
        name=name,
        folder=str(folder),
        digest=fingerprint(folder),
        update=update if isinstance(update, int) else None,
    )


def run_of(name: str) -> RunDirectory | None:
    """The run directory of a MODEL name, with or without ``@checkpoint``; None where there is none."""
    path = Path(name)
    if not path.exists() and "@" in path.name:
        path = Path(name.rpartition("@")[0])
    run = RunDirectory(path)
    return run if run.checkpoints_folder.is_dir() else None


@dataclass(frozen=True)
class ParallelText:
    """Sentences and their translations, for a model to read; of several references models read the first."""

    source: Text
    reference: Text

    @property
    def description(self) -> str:
        """Names and size, for the provenance of a finding."""
        names = " and ".join(text.name for text in (self.source, *self.reference.references))
        return f"{names}, {counted(len(self.source.lines), 'pair')}"

    def beginning(self, limit: int | None) -> ParallelText:
        """The first `limit` pairs; all of them where it is None."""
        rows = range(len(self.source.lines))[:limit]
        return ParallelText(self.source.only(rows), self.reference.only(rows))


def read_pairs(
    model: str,
    source: Path | None = None,
    reference: Path | None = None,
    limit: int | None = None,
    direction: Direction | None = None,
) -> ParallelText:
    """The first `limit` pairs of two files, or of the test set that a run file names as ``data.test``.

    `direction` says which test set, where the run has several.

    Raises:
        UsageError: One file is missing, or the model belongs to no run that names a test set.
        DataError: A file cannot be read, or the two differ in length.
    """
    if (source is None) != (reference is None):
        raise UsageError(
            "--source and --reference go together", "give both, or neither for the run's data.test"
        )
    if source is not None and reference is not None:
        texts = read_text(source), read_text(reference)
    elif direction is not None:
        texts = texts_of_run(model).read(direction)
    else:
        texts = test_set(model)
    check_line_counts([(text.name, text.lines) for text in texts])
    return ParallelText(*texts).beginning(limit)


def aligned_pairs(
    subject: AnalysedModel, pairs: ParallelText, *, to: str = "", longest: int | None = None
) -> dict[int, AlignedPair]:
    """The pairs with words on both sides as the model reads them, by row, at most `longest` subwords of each.

    `to` is the language of the references, for a model of several directions.

    Raises:
        UsageError: The model has several directions and does not know to which, or does not know `to`.
        DataError: No pair has words on both sides.
    """
    vocabularies = subject.loaded.vocabularies
    bos = subject.loaded.metadata.get("source_bos") is True
    # A direction that the model was not trained in is what was asked for: no warning.
    into = LanguageSelector(languages_of(subject.loaded), vocabularies, lambda _: None).select(to)
    sources = vocabularies.source.encode_lines(pairs.source.lines)
    targets = vocabularies.target.encode_lines(pairs.reference.lines)
    aligned = {
        row: AlignedPair.of(source[:longest], target[:longest], into, bos=bos)
        for row, (source, target) in enumerate(zip(sources, targets, strict=True))
        if source and target
    }
    if not aligned:
        raise DataError(f"{pairs.description}: no pair has words on both sides")
    return aligned


def batches(subject: AnalysedModel, pairs: ParallelText, *, to: str = "") -> Iterator[DeviceBatch]:
    """The pairs as the model reads them in training, longest first; arguments as of `aligned_pairs`."""
    aligned = list(aligned_pairs(subject, pairs, to=to, longest=LONGEST).values())
    device = next(subject.loaded.model.parameters()).device
    for batch in batches_by_length([max(len(each.source), len(each.read)) for each in aligned], BATCH_TOKENS):
        chosen = [aligned[index] for index in batch]
        into = [each.language for each in chosen if each.language is not None]
        yield DeviceBatch(
            pad_batch([each.source for each in chosen], device),
            pad_batch([each.read for each in chosen], device),
            pad_batch([[*each.target, EOS] for each in chosen], device),
            target_language_ids(into, device) if into else None,
        )


def text_of_model(name: str) -> Unit | None:
    """The unit of the documents of a language model; None: it translates."""
    text = read_metadata(find_model(name)).get("text")
    return None if text is None else TextConfig.model_validate(text).unit


def read_documents(model: str, file: Path | None, limit: int | None) -> tuple[str, list[list[str]]]:
    """The first `limit` documents of a file, or of the `data.test` in the run file of a language model.

    Returns:
        Name and size of the text, for the provenance of a finding, and the lines of each document.

    Raises:
        UsageError: No file is given, and the model belongs to no run that names a test text.
        DataError: The text cannot be read, or has no document.
    """
    if file is not None:
        text = read_text(file)
    else:
        data = data_section(model)
        if not data.test:
            raise UsageError(f"{model}: the run file names no data.test", "give the text: --reference FILE")
        text = Text(data.test[0].label, [pair.target for pair in usable_pairs(data.test[0], data)])
    unit = text_of_model(model)
    assert unit is not None, "the models were looked at before"
    documents = list(islice(documents_of(text.lines, unit), limit))
    if not documents:
        raise DataError(f"{text.name}: has no line that is not empty")
    return f"{text.name}, {counted(len(documents), 'document')}", documents


@dataclass(frozen=True)
class ReadText:
    """A text as a model reads it, also a language model.

    Attributes:
        description: For the provenance of a finding.
        batches: Of sentences with their translations, or of documents.
        past: How the decoder knows its past, in the middle of a sentence; empty for documents.
    """

    description: str
    batches: Sequence[DeviceBatch]
    past: str = ", the decoder with the reference as its past,"


def text_for(
    subject: AnalysedModel,
    source: Path | None,
    reference: Path | None,
    sentences: int | None,
    direction: Direction | None,
) -> ReadText:
    """The text that a model is to read.

    Args:
        source, reference: Files; a language model reads a reference alone. Default: the test set of the run.
        sentences: Only so many pairs or documents from the beginning; None: all.
        direction: Direction of the text, for a model of several.

    Raises:
        UsageError: The files do not fit the model, or there are none and no test set.
        DataError: A file cannot be read, or the two differ in length.
    """
    device = next(subject.loaded.model.parameters()).device
    if text_of_model(subject.name) is not None:
        refuse_source(source, direction)
        description, documents = read_documents(subject.name, reference, sentences)
        vocabulary = subject.loaded.vocabularies.target
        ids = [document_ids(lines, vocabulary)[:LONGEST] for lines in documents]
        made = []
        for batch in batches_by_length([len(row) for row in ids], BATCH_TOKENS):
            chosen = [ids[index] for index in batch]
            sources = torch.zeros(len(chosen), 0, dtype=torch.int64, device=device)
            past = [[EOS, *row[:-1]] for row in chosen]  # a document begins behind the end of another one
            made.append(DeviceBatch(sources, pad_batch(past, device), pad_batch(chosen, device)))
        return ReadText(description, made, past="")
    to = selected_target(subject.name, direction)
    pairs = read_pairs(subject.name, source, reference, sentences, direction)
    return ReadText(pairs.description, list(batches(subject, pairs, to=to)))


def refuse_source(source: Path | None, direction: object) -> None:
    """Raises a UsageError where there is a source or a direction, which only models that translate have."""
    for option, value in (("--source", source), ("--direction", direction)):
        if value is not None:
            raise UsageError(
                f"{option} is for models that translate, and this is a language model",
                "give the text: --reference FILE, or nothing for the run's data.test",
            )


@dataclass(frozen=True)
class TrainingText:
    """The run file of a run, and its prepared text."""

    config: RunFile
    prepared: Prepared

    def updates(self, device: torch.device, *, batch_tokens: int, seed: int) -> Generator[DeviceUpdate]:
        """Updates without end, in an order that only the seed decides; without random segmentation.

        With several directions all of them are in it, each with its share of training.
        """
        settings = BatchSettings(
            batch_tokens=batch_tokens,
            micro_batch_tokens=self.config.training.micro_batch_tokens or batch_tokens,
            source_bos=self.config.data.source_bos,
            languages=self.prepared.languages,
            context=self.prepared.context,
        )
        return feed(UpdateStream(self.prepared.train, settings, seed=seed), StreamPosition(), device)


def training_text(
    name: str,
    vocabularies: Vocabularies,
    hint: str = "this analysis trains a part of the model; give RUN or RUN@checkpoint",
    progress: Progress | None = None,
) -> TrainingText:
    """The text that the run of a MODEL name was trained on; prepared again where it is no longer there.

    Raises:
        UsageError: The name belongs to no run directory; with the hint.
        DataError: The text is gone or damaged.
        ModelError: The stored settings are damaged, or the text gives another vocabulary now.
    """
    run = run_of(name)
    if run is None:
        raise UsageError(f"{name} is not a run directory, so its training text is not known", hint)
    config = run_file_of(run)
    prepared = prepare(config.data, seed=config.seed, progress=progress)
    if prepared.vocabularies.digest != vocabularies.digest:
        raise ModelError(
            f"{run.path}: its training text gives another vocabulary now",
            "the text has changed since the run was trained; restore it",
        )
    return TrainingText(config, prepared)


def run_file_of(run: RunDirectory) -> RunFile:
    """The settings of a run; a ModelError where its record of them is damaged."""
    try:
        return RunFile.model_validate(completed(read_json(run.resolved_config)))
    except ValidationError as error:
        raise ModelError(f"{run.resolved_config}: {error.errors()[0]['msg']}") from error


def open_untrained(name: str, overrides: Sequence[str] = ()) -> TrainingText:
    """Read a run file or recipe, and prepare its text where that was not done before.

    Raises:
        UsageError: A setting is wrong.
        DataError, ResourceError: As `deepwire.data.prepare.prepared.prepare`.
    """
    config = load_run_file(name, overrides).config
    return TrainingText(config, prepare(config.data, seed=config.seed))


def untrained_model(text: TrainingText, seed: int, device: torch.device) -> TranslationModel:
    """The model that training with this seed begins with."""
    with own_random_numbers(device):
        seed_random_numbers(seed, device)
        built = build_model(text.config.model, *text.prepared.model_sizes).to(device)
        if built.needs_profile:
            tokens = text.config.training.batch_tokens
            with closing(text.updates(device, batch_tokens=tokens, seed=seed)) as updates:
                batch = next(updates).batches[0]
            built.profile(batch.source, batch.target_input, languages=batch.languages)
        built.begin_update(1)
    return built


class TimedTranslation(NamedTuple):
    """A translation and how long it took, without loading the model."""

    lines: list[str]
    seconds: float


class Scorer:
    """Translates a text with variants of one loaded MODEL, and counts BLEU.

    Args:
        to: The language of the reference: what a model of several directions is to translate into.
        metric: In place of BLEU with the tokenizer of the language.

    Raises:
        ModelError: There is no such model.
        UsageError: A setting is impossible, or the model does not know the language, or needs one.
    """

    def __init__(
        self,
        name: str,
        pairs: ParallelText,
        search: SearchSettings,
        warn: LogFn,
        *,
        to: str = "",
        metric: Metric | None = None,
    ) -> None:
        self.name, self.pairs, self.to = name, pairs, to
        self.loaded: LoadedModels = load_models([name], search.device, search.precision, search.decoding)
        self.loaded.require_translation()
        into = LanguageSelector(self.loaded.languages, self.loaded.models[0].vocabularies, warn).select(to)
        self.languages = None if into is None else target_language_ids([into], self.loaded.device)
        if metric is None:
            metrics = LanguageMetrics(("bleu",))
            named = to or named_target(self.loaded.models[0].metadata)
            (metric,) = metrics.of(named or language_of(pairs.reference))
            for warning in filter(None, (*metrics.notes, without_spaces(pairs.reference, [metric]))):
                warn(warning)
        self.metric, self._warn = metric, warn

    @property
    def model(self) -> TranslationModel:
        """The model as it is."""
        return self.loaded.models[0].model

    @property
    def subject(self) -> AnalysedModel:
        """The model, as analyses take it."""
        return AnalysedModel(self.name, self.loaded.models[0])

    @property
    def settings(self) -> dict[str, str]:
        """Everything that decides BLEU besides model and text, for the provenance of a finding."""
        config, digest = self.loaded.config, hashlib.blake2b(digest_size=8)
        for text in (self.pairs.source, *self.pairs.reference.references):
            for line in text.lines:
                digest.update(line.encode() + b"\n")
        return {
            "beam": str(config.beam),
            "length penalty": f"{config.length_penalty} ({config.length_penalty_form})",
            "batch tokens": str(config.batch_tokens),
            "device": str(self.loaded.device),
            "precision": self.loaded.precision,
            "BLEU": self.metric.signature(reference_count(self.pairs.reference.answers)),
            "text digest": digest.hexdigest(),
        }

    def bleu(self, model: TranslationModel, groups: str | None = None) -> float:
        """BLEU of the translation by a variant of this model; `groups` of its decoder alone: `4` or `3:6`."""
        return self.score(self.translate(model, groups=groups).lines)

    def score(self, lines: Sequence[str]) -> float:
        """BLEU of a translation of the whole text."""
        return self.metric.score(lines, self.pairs.reference.answers).value

    def translate(
        self,
        model: TranslationModel,
        lines: Sequence[str] | None = None,
        groups: str | None = None,
        *,
        documents: bool = True,
    ) -> TimedTranslation:
        """Translate the text, or `lines` of it, and take the time.

        With document context the lines in front of a line are its context, unless `documents` is False.
        """
        config = self.loaded.config
        if groups is not None:
            config = config.model_copy(update={"groups": groups})
        translator: Translator = Translator(
            [model],
            self.loaded.models[0].vocabularies,
            config,
            device=self.loaded.device,
            source_bos=self.loaded.source_bos,
            warn=self._warn,
            languages=self.loaded.languages,
            context=self.loaded.context,
        )
        begun = time.perf_counter()
        answers = translator.translations(
            self.pairs.source.lines if lines is None else lines, to=self.to or None, documents=documents
        )
        translation = [answer.candidates[0].text for answer in answers]
        return TimedTranslation(translation, time.perf_counter() - begun)
