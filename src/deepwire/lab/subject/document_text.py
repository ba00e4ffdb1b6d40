"""Text for models to read: documents for language models, pairs for others; a file or a run's test set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from pydantic import ValidationError

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import read_metadata
from deepwire.data.data_config import CorpusConfig, DataConfig, TextConfig, Unit
from deepwire.data.languages import Direction
from deepwire.data.prepare.packing import document_ids, documents_of
from deepwire.data.text.corpus import read_pairs
from deepwire.data.vocabulary import EOS
from deepwire.decoding.model_inputs import batches_by_length, pad_batch
from deepwire.errors import DataError, ModelError, UsageError
from deepwire.evaluation.texts import data_section, read_text, selected_target
from deepwire.lab.subject.model_and_text import BATCH_TOKENS, LONGEST, AnalysedModel, PairBatch, batches
from deepwire.lab.subject.model_and_text import read_pairs as read_sentences


@dataclass(frozen=True)
class DocumentText:
    """The lines of each document of a text for language models."""

    name: str
    unit: Unit
    documents: Sequence[Sequence[str]]

    @property
    def description(self) -> str:
        """Name and size, for the provenance of a finding."""
        return f"{self.name}, {len(self.documents):,} documents"


def text_of_model(name: str) -> Unit | None:
    """The unit of the documents of a language model; None: the model translates.

    Raises:
        ModelError: There is no such model, or its description is damaged.
    """
    text = read_metadata(find_model(name)).get("text")
    if text is None:
        return None
    try:
        return TextConfig.model_validate(text).unit
    except ValidationError as error:
        raise ModelError(f"{name}: stored description of its text: {error.errors()[0]['msg']}") from error


def read_documents(model: str, file: Path | None, limit: int | None) -> DocumentText:
    """The first `limit` documents of a file, or of the `data.test` in the run file of a language model.

    Raises:
        UsageError: No file is given, and the model belongs to no run that names a test text.
        DataError: The text cannot be read, or has no document.
    """
    if file is not None:
        text = read_text(file)
        name, lines = text.name, text.lines
    else:
        name, lines = _test_lines(model)
    unit = text_of_model(model)
    assert unit is not None, "the models were looked at before"
    documents = list(islice(documents_of(lines, unit), limit))
    if not documents:
        raise DataError(f"{name}: has no line that is not empty")
    return DocumentText(name, unit, documents)


def _test_lines(model: str) -> tuple[str, list[str]]:
    try:
        data = data_section(model)
    except UsageError as error:
        raise UsageError(error.message, "give the text: --reference FILE") from None
    if not data.test:
        raise UsageError(f"{model}: the run file names no data.test", "give the text: --reference FILE")
    return data.test[0].label, _lines(data.test[0], data)


def _lines(corpus: CorpusConfig, data: DataConfig) -> list[str]:
    lines = []
    for pair in read_pairs(corpus, data):
        if pair.fault:
            raise DataError(
                f"{corpus.label}:{pair.line}: the line cannot be used ({pair.fault})", "repair it"
            )
        lines.append(pair.target)
    return lines


def document_batches(subject: AnalysedModel, text: DocumentText) -> Iterator[PairBatch]:
    """The documents as a language model reads them, behind the end of another one; sources are empty."""
    vocabulary = subject.loaded.vocabularies.target
    ids = [document_ids(lines, vocabulary)[:LONGEST] for lines in text.documents]
    device = next(subject.loaded.model.parameters()).device
    for batch in batches_by_length([len(row) for row in ids], BATCH_TOKENS):
        chosen = [ids[index] for index in batch]
        yield PairBatch(
            torch.zeros(len(chosen), 0, dtype=torch.int64, device=device),
            pad_batch([[EOS, *row[:-1]] for row in chosen], device),
            pad_batch(chosen, device),
            tuple(batch),
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
    batches: Callable[[], Iterator[PairBatch]]

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
        subject: The model.
        source, reference: Files; a language model reads a reference alone. Default: the test set of the run.
        sentences: Only so many pairs or documents from the beginning; None: all.
        direction: Direction of the text, for a model of several.

    Raises:
        UsageError: The files do not fit the model, or there are none and no test set.
        DataError: A file cannot be read, or the two differ in length.
    """
    if text_of_model(subject.name) is not None:
        refuse_source(source, direction)
        documents = read_documents(subject.name, reference, sentences)
        return ReadText(documents.description, False, partial(document_batches, subject, documents))
    to = selected_target(subject.name, direction)
    pairs = read_sentences(subject.name, source, reference, sentences, direction)
    return ReadText(pairs.read, True, partial(batches, subject, pairs, to=to))


def refuse_source(source: Path | None, direction: object) -> None:
    """Refuse options that only translation models have.

    Raises:
        UsageError: There is a source, or a direction.
    """
    for option, value in (("--source", source), ("--direction", direction)):
        if value is not None:
            raise UsageError(
                f"{option} is for models that translate, and this is a language model",
                "give the text: --reference FILE, or nothing for the run's data.test",
            )
