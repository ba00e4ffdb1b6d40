"""The subject of analyses: a model by its name, the stacks that it has, and text for it to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from deepwire.checkpoint.model_files import fingerprint
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import LoadedModel, load_model, read_metadata
from deepwire.data.languages import Direction
from deepwire.data.vocabulary import BOS, EOS
from deepwire.decoding.model_inputs import LanguageSelector, batches_by_length, pad_batch, target_language_ids
from deepwire.decoding.model_loading import languages_of, pick_device
from deepwire.errors import DataError, UsageError
from deepwire.evaluation.directed_texts import texts_of_run
from deepwire.evaluation.texts import Text, read_text, test_set
from deepwire.lab.report.finding import ModelSource
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel

BATCH_TOKENS = 1024
LONGEST = 256
"""Subwords after which a text is cut."""


def present(model: TranslationModel, sides: Sequence[Side]) -> list[Side]:
    """The sides among these that the model has a stack for; all of them where it has none of them."""
    return [side for side in sides if side in model.stacks()] or list(sides)


def check_layer(stack: Stack, side: Side, layer: int) -> None:
    """Refuse a layer number, counted from 1, that a stack does not have.

    Raises:
        UsageError: There is no such layer.
    """
    if not 1 <= layer <= stack.depth:
        raise UsageError(f"the {side} has layers 1 to {stack.depth}, not {layer}")


class NotApplicableError(UsageError):
    """The model has nothing that this analysis looks at; a report over many analyses leaves it out."""


def repeating(model: TranslationModel) -> str:
    """Why layers of a model cannot be followed one after the other; nothing where they can."""
    for side, stack in model.stacks().items():
        if stack.repeats:
            return f"the middle layers of the {side} run in rounds (model.{side}.recurrence)"
    return ""


@dataclass(frozen=True)
class AnalysedModel:
    """A model under study.

    Attributes:
        name: As the user named it.
        loaded: The model in evaluation mode, with its vocabularies.
        run: The run directory that it comes from; None for a model directory elsewhere.
    """

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
        return f"{names}, {len(self.source.lines):,} pairs"

    def beginning(self, limit: int | None) -> ParallelText:
        """The first `limit` pairs; all of them where it is None."""
        rows = range(len(self.source.lines))[:limit]
        return ParallelText(self.source.only(rows), self.reference.only(rows))

    @property
    def read(self) -> str:
        """The description of what `batches` gives."""
        pairs = zip(self.source.lines, self.reference.lines, strict=True)
        empty = sum(not (source.strip() and reference.strip()) for source, reference in pairs)
        return self.description + (f", {empty:,} of them left out, with an empty side" if empty else "")


def read_pairs(
    model: str,
    source: Path | None = None,
    reference: Path | None = None,
    limit: int | None = None,
    direction: Direction | None = None,
) -> ParallelText:
    """The first `limit` pairs of two files, or of the test set that a run file names as ``data.test``.

    Args:
        model: A MODEL name.
        source, reference: Files; both or neither.
        limit: None: all pairs.
        direction: Which test set, where the run has several.

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
    lines = [len(text.lines) for text in texts]
    if lines[0] != lines[1]:
        raise DataError(
            f"{texts[0].name} has {lines[0]} lines, {texts[1].name} {lines[1]}",
            "line n of one must be the translation of line n of the other",
        )
    return ParallelText(*texts).beginning(limit)


@dataclass(frozen=True)
class PairBatch:
    """Pairs as ids, padded on the right; int64.

    Attributes:
        source: ``[B, S]``, ending in EOS.
        target_input: ``[B, T]``, beginning with BOS or the tag of the language.
        target_output: ``[B, T]``, ending in EOS.
        rows: Which pairs these are, counted from 0.
        languages: Target language of each row, ``[B]``, in a model of several directions.
    """

    source: Tensor
    target_input: Tensor
    target_output: Tensor
    rows: tuple[int, ...]
    languages: Tensor | None = None


def batches(
    subject: AnalysedModel, pairs: ParallelText, tokens: int = BATCH_TOKENS, *, to: str = ""
) -> Iterator[PairBatch]:
    """The pairs as the model reads them in training, longest first; pairs with an empty side are left out.

    Args:
        subject: The model.
        pairs: Raw text.
        tokens: Padded target subwords of a batch.
        to: The language of the references, for a model of several directions.

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
    for batch in batches_by_length(lengths, tokens):
        rows = tuple(full[index] for index in batch)
        yield PairBatch(
            pad_batch([[*head, *sources[row], EOS] for row in rows], device),
            pad_batch([[first, *targets[row]] for row in rows], device),
            pad_batch([[*targets[row], EOS] for row in rows], device),
            rows,
            None if into is None else target_language_ids([into] * len(rows), device),
        )
