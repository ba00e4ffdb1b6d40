"""Looking at all text of a run before training: what is kept, what is dropped, what looks wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TextIO

from deepwire.data.batches.mixture import DirectionShare, shares
from deepwire.data.data_config import DataConfig, Role
from deepwire.data.filtering.filter_report import CheckReport
from deepwire.data.filtering.filters import NAMES
from deepwire.data.filtering.selection import Selection
from deepwire.data.text.corpus import corpus_files
from deepwire.data.text.directed import directed
from deepwire.data.text.pairs import Pair
from deepwire.io.output import open_output

HEADER = ("corpus", "line", "reason", "source", "target")

_ESCAPES = {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}

OnReject = Callable[[str, str, Pair, str], None]


class Checked(NamedTuple):
    """What was found in the text of a run."""

    reports: dict[str, CheckReport]
    """By role (`train`, `valid`, `test`), or by role and direction (`train en-de`)."""
    mix: list[DirectionShare]
    """What each direction has of an epoch; empty without directions."""


def files(data: DataConfig) -> list[Path]:
    """Every file that `check` reads.

    Raises:
        DataError: a side of a prefix does not exist.
    """
    return [
        path
        for role in data.corpora()
        for corpus in directed(data, role)
        for path in corpus_files(corpus, data)
    ]


def check(
    data: DataConfig,
    *,
    seed: int = 1,
    samples: int = 5,
    on_reject: OnReject | None = None,
    on_progress: Callable[[str, int], None] | None = None,
) -> Checked:
    """Read and filter every text of `data` once, in a run with directions once for each direction.

    Validation and test text is only refused what cannot be used at all: length, ratio and duplicates are for
    training.

    Args:
        data: What to read.
        seed: Chooses the sample pairs.
        samples: How many random pairs a report shows.
        on_reject: Called with role, corpus name, pair and reason for every dropped pair.
        on_progress: Called with role and pairs read so far, about every 10,000 pairs.

    Raises:
        DataError: a text cannot be read, or no pair of it can be used.
    """
    roles = list(data.corpora())
    selections = {
        role: Selection(role, directed(data, role), data, samples=samples, seed=seed) for role in roles
    }
    reports: dict[str, CheckReport] = {}
    for role, selection in selections.items():
        _read(role, selection, selections["train"], on_reject, on_progress)
        selection.require_some()
        reports |= selection.reports()
    return Checked(reports, _mix(data, selections["train"]))


def _read(
    role: Role,
    selection: Selection,
    training: Selection,
    on_reject: OnReject | None,
    on_progress: Callable[[str, int], None] | None,
) -> None:
    progress = None if on_progress is None else partial(on_progress, role)
    for block in selection.read(show_dropped=on_reject is not None, progress=progress):
        selection.keep(block.pairs, block.lengths)
        if on_reject is not None:
            label = selection.corpora[block.pairs.corpus].label
            for pair, reason in zip(block.dropped, block.reasons[block.reasons != 0], strict=True):
                on_reject(role, label, pair, NAMES[reason])
        if role != "train":
            selection.count_seen(block, training)


def _mix(data: DataConfig, training: Selection) -> list[DirectionShare]:
    if data.languages is None:
        return []
    kept = [training.kept(number) for number in range(len(training.corpora))]
    weights = [corpus.weight for corpus in training.corpora]
    return shares(data.languages, kept, weights, training.directions, data.sampling_temperature)


class RejectFile:
    """A TSV file with a header line.

    Tabs, line ends and backslashes in a text are written as `\\t`, `\\n`, `\\r` and `\\\\`. Pairs that cannot
    be used as text show what could be read of them.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._write(HEADER)

    @classmethod
    @contextmanager
    def at(cls, path: Path) -> Iterator[RejectFile]:
        """A file that has its name only once it is complete; compressed where its ending says so.

        Raises:
            UsageError: the file cannot be written there.
            ResourceError: nothing can be written there.
        """
        with open_output(path) as file:
            yield cls(file)

    def add(self, role: str, corpus: str, pair: Pair, reason: str) -> None:
        """Write one dropped pair of the corpus named `corpus`, of `train`, `valid` or `test`."""
        self._write((f"{role}/{corpus}", str(pair.line), reason, pair.source, pair.target))

    def _write(self, fields: tuple[str, ...]) -> None:
        line = "\t".join(field.translate(_ESCAPES) for field in fields)
        # JSON can hold halves of characters, UTF-8 cannot.
        self._file.write(line.encode(errors="replace").decode() + "\n")
