"""Which pairs of a role are kept, and what is counted of them: by direction where a run has several."""

from __future__ import annotations

from collections.abc import Sequence

from deepwire.data.config import CorpusConfig, DataConfig, FilterConfig, Role
from deepwire.data.corpus import Pair
from deepwire.data.directed import directions_of
from deepwire.data.files import ReadNotes
from deepwire.data.filters import REASONS, PairFilter
from deepwire.data.report import CheckReport
from deepwire.errors import DataError

LENIENT = FilterConfig(max_characters=1 << 30, max_ratio=1e9, drop_duplicates=False)
"""For validation and test text, which is only refused what cannot be used at all."""


class Selection:
    """Filters and reports of one role; one of each, or one of each for every direction.

    A pair is a duplicate only of a pair of its own direction.

    Args:
        role: What the corpora are for.
        corpora: As `directed` gives them; `Pair.corpus` is a place in this list.
        data: The run's data section.
        samples: How many random pairs a report shows.
        seed: Chooses them.
    """

    def __init__(
        self,
        role: Role,
        corpora: Sequence[CorpusConfig],
        data: DataConfig,
        *,
        samples: int = 5,
        seed: int = 1,
    ) -> None:
        self.role, self.corpora = role, corpora
        places = directions_of(corpora, data)
        self.directions = places if places is not None else [0] * len(corpora)
        groups = sorted(set(self.directions))
        filters = data.filters if role == "train" else LENIENT
        self._filters = {group: PairFilter(filters) for group in groups}
        self._reports: dict[int, CheckReport] = {}
        self._places: list[int] = [0] * len(corpora)
        self.names: dict[int, str] = {}
        for group in groups:
            members = [number for number, place in enumerate(self.directions) if place == group]
            for place, number in enumerate(members):
                self._places[number] = place
            first = corpora[members[0]]
            labels = (first.source or data.source, first.target or data.target)
            self.names[group] = role if data.languages is None else f"{role} {'-'.join(labels)}"
            self._reports[group] = CheckReport(
                [corpora[number].label for number in members], labels, samples=samples, seed=seed
            )

    def reason(self, pair: Pair) -> str | None:
        """Why a pair is dropped, None where it is kept; kept training pairs are remembered."""
        return self._filters[self.directions[pair.corpus]].reason(pair)

    def seen(self, pair: Pair, other: Selection) -> bool:
        """Whether this selection kept a pair that is equal to one of `other`, in the same direction."""
        found = self._filters.get(other.directions[pair.corpus])
        return found is not None and found.seen(pair)

    def notes(self, corpus: int) -> ReadNotes:
        """Where reading a corpus counts what it repairs."""
        return self._of(corpus).notes

    def add(self, pair: Pair, reason: str | None) -> None:
        """Count a pair that was kept (`reason` is None) or dropped."""
        place = self._places[pair.corpus]
        own = pair if place == pair.corpus else pair._replace(corpus=place)
        self._of(pair.corpus).add(own, reason)

    def add_seen(self, pair: Pair) -> None:
        """Count a pair that is also in the training text."""
        self._of(pair.corpus).also_in_training += 1

    def reports(self) -> dict[str, CheckReport]:
        """The reports, by role or by role and direction (`train en-de`)."""
        return {self.names[group]: report for group, report in self._reports.items()}

    def kept(self, corpus: int) -> int:
        """How many pairs of a corpus were kept so far."""
        return self._of(corpus).corpora[self._places[corpus]].kept

    def require_some(self) -> None:
        """See that something is left in every direction.

        Raises:
            DataError: no pair of a direction can be used.
        """
        for report in self._reports.values():
            if report.kept == 0:
                names = ", ".join(corpus.name for corpus in report.corpora)
                raise DataError(f"{names}: none of {report.pairs} pairs can be used", _main_reason(report))

    def _of(self, corpus: int) -> CheckReport:
        return self._reports[self.directions[corpus]]


def _main_reason(report: CheckReport) -> str:
    reason = max(report.dropped, key=lambda name: report.dropped[name].count)
    return f"most were dropped because {REASONS.get(reason, reason)}; see data.filters"
