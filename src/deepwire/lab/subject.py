"""The subject of analyses: a model by its name, the stacks that it has, and text for it to read."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

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
from deepwire.data.vocabulary import BOS, EOS, Vocabularies
from deepwire.decoding.model_inputs import LanguageSelector, batches_by_length, pad_batch, target_language_ids
from deepwire.decoding.model_loading import languages_of, pick_device
from deepwire.errors import DataError, ModelError, UsageError
from deepwire.evaluation.metric import check_line_counts
from deepwire.evaluation.texts import (
    Text,
    data_section,
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
    """A model under study, in evaluation mode; `run` is None for a model directory outside of a run."""

    name: str
    loaded: LoadedModel
    run: RunDirectory | None

    @property
    def source(self) -> ModelSource:
        """The model, for the provenance of a finding."""
        return source_of(self.name, self.loaded.folder, self.loaded.metadata)


def open_model(name: str, device: str = "cpu") -> AnalysedModel:
    """Load a MODEL name in float32.

    Raises:
        ModelError: There is no such model, or it is damaged.
        UsageError: There is no such device.
    """
    place = pick_device(device)
    return AnalysedModel(name, load_model(find_model(name), place), run_of(name))


def model_source(name: str) -> ModelSource:
    """The model that a MODEL name stands for, for the provenance of a finding; it is not loaded.

    Raises:
        ModelError: There is no such model, or its description is damaged.
    """
    folder = find_model(name)
    return source_of(name, folder, read_metadata(folder))


def source_of(name: str, folder: Path, metadata: Mapping[str, object]) -> ModelSource:
    """A model in a folder, for the provenance of a finding."""
    update = metadata.get("update")
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


def batches(subject: AnalysedModel, pairs: ParallelText, *, to: str = "") -> Iterator[DeviceBatch]:
    """The pairs as the model reads them in training, longest first; pairs with an empty side are left out.

    `to` is the language of the references, for a model of several directions.

    Raises:
        UsageError: The model has several directions and does not know to which, or does not know `to`.
        DataError: No pair has words on both sides.
    """
    vocabularies = subject.loaded.vocabularies
    head = [BOS] if subject.loaded.metadata.get("source_bos") is True else []
    first = BOS
    # A direction that the model was not trained in is what was asked for: no warning.
    into = LanguageSelector(languages_of(subject.loaded), vocabularies, lambda _: None).select(to)
    if into is not None:
        head, first = [*head, *([] if into.source_tag is None else [into.source_tag])], into.first_token
    sources = [ids[:LONGEST] for ids in vocabularies.source.encode_lines(pairs.source.lines)]
    targets = [ids[:LONGEST] for ids in vocabularies.target.encode_lines(pairs.reference.lines)]
    full = [row for row in range(len(sources)) if sources[row] and targets[row]]
    if not full:
        raise DataError(f"{pairs.description}: no pair has words on both sides")
    device = next(subject.loaded.model.parameters()).device
    lengths = [max(len(sources[row]), len(targets[row])) + 1 for row in full]
    for batch in batches_by_length(lengths, BATCH_TOKENS):
        rows = [full[index] for index in batch]
        yield DeviceBatch(
            pad_batch([[*head, *sources[row], EOS] for row in rows], device),
            pad_batch([[first, *targets[row]] for row in rows], device),
            pad_batch([[*targets[row], EOS] for row in rows], device),
            None if into is None else target_language_ids([into] * len(rows), device),
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
    text = read_text(file) if file is not None else _test_text(model)
    unit = text_of_model(model)
    assert unit is not None, "the models were looked at before"
    documents = list(islice(documents_of(text.lines, unit), limit))
    if not documents:
        raise DataError(f"{text.name}: has no line that is not empty")
    return f"{text.name}, {counted(len(documents), 'document')}", documents


def _test_text(model: str) -> Text:
    data = data_section(model)
    if not data.test:
        raise UsageError(f"{model}: the run file names no data.test", "give the text: --reference FILE")
    corpus = data.test[0]
    return Text(corpus.label, [pair.target for pair in usable_pairs(corpus, data)])


def document_batches(subject: AnalysedModel, documents: Sequence[Sequence[str]]) -> Iterator[DeviceBatch]:
    """Documents as a language model reads them, behind the end of another one; sources are empty."""
    vocabulary = subject.loaded.vocabularies.target
    ids = [document_ids(lines, vocabulary)[:LONGEST] for lines in documents]
    device = next(subject.loaded.model.parameters()).device
    for batch in batches_by_length([len(row) for row in ids], BATCH_TOKENS):
        chosen = [ids[index] for index in batch]
        yield DeviceBatch(
            torch.zeros(len(chosen), 0, dtype=torch.int64, device=device),
            pad_batch([[EOS, *row[:-1]] for row in chosen], device),
            pad_batch(chosen, device),
        )


@dataclass(frozen=True)
class ReadText:
    """A text as a model reads it, also a language model.

    Attributes:
        description: For the provenance of a finding.
        pairs: Whether they are sentences with their translations; otherwise documents.
        batches: Makes the batches, as often as they are wanted.
    """

    description: str
    pairs: bool
    batches: Callable[[], Iterator[DeviceBatch]]

    @property
    def past(self) -> str:
        """How the decoder knows its past, in the middle of a sentence."""
        return ", the decoder with the reference as its past," if self.pairs else ""


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
    if text_of_model(subject.name) is not None:
        refuse_source(source, direction)
        description, documents = read_documents(subject.name, reference, sentences)
        return ReadText(description, False, partial(document_batches, subject, documents))
    to = selected_target(subject.name, direction)
    return text_of_pairs(subject, read_pairs(subject.name, source, reference, sentences, direction), to)


def text_of_pairs(subject: AnalysedModel, pairs: ParallelText, to: str) -> ReadText:
    """Sentences and their translations into `to` as a model reads them; see `batches`."""
    return ReadText(pairs.description, True, partial(batches, subject, pairs, to=to))


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


def training_text(name: str, loaded: LoadedModel) -> TrainingText:
    """The text that the run of a MODEL name was trained on; prepared again where it is no longer there.

    Raises:
        UsageError: The name belongs to no run directory.
        DataError: The text is gone or damaged.
        ModelError: The stored settings are damaged, or the text gives another vocabulary now.
    """
    run = run_of(name)
    if run is None:
        raise UsageError(
            f"{name} is not a run directory, so its training text is not known",
            "this analysis trains a part of the model; give RUN or RUN@checkpoint",
        )
    return text_of_run(run, loaded.vocabularies)


def text_of_run(
    run: RunDirectory, vocabularies: Vocabularies, progress: Progress | None = None
) -> TrainingText:
    """The text that a run was trained on; prepared again where it is no longer there.

    Raises:
        DataError: The text is gone or damaged.
        ModelError: The stored settings are damaged, or the text gives another vocabulary now.
    """
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
    source, target, languages = text.prepared.model_sizes
    with own_random_numbers(device):
        seed_random_numbers(seed, device)
        built = build_model(text.config.model, source, target, languages=languages)
        built.to(device)
        if built.needs_profile:
            tokens = text.config.training.batch_tokens
            with closing(text.updates(device, batch_tokens=tokens, seed=seed)) as updates:
                batch = next(updates).batches[0]
            built.profile(batch.source, batch.target_input, languages=batch.languages)
        built.begin_update(1)
    return built
