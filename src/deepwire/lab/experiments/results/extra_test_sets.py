"""Test sets besides ``data.test``: one text of a thousand sentences says little about the next one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deepwire.errors import Tell
from deepwire.evaluation.texts import Text, read_text
from deepwire.lab.experiments.results.planned_runs import RunPlan
from deepwire.lab.experiments.results.result_store import ResultStore
from deepwire.lab.experiments.results.run_measurement import RunResult, keep_lines, scorer_of
from deepwire.lab.subject.model_and_text import ParallelText
from deepwire.lab.subject.scorer import digest_of


class ExtraTestSets:
    """What trained runs make of the plan's own test sets; what is translated is kept.

    Args:
        texts: Source and reference by direction and name.
        folder: ``more-tests/`` is made in it, and ``translations/NAME/`` for each text.
        warn: Receives warnings, one line each.
    """

    def __init__(
        self,
        texts: Mapping[str, Mapping[str, tuple[Text, Text]]],
        folder: Path,
        warn: Tell,
    ) -> None:
        self._texts = {
            direction: {name: ParallelText(*text) for name, text in by_name.items()}
            for direction, by_name in texts.items()
        }
        self._digests = {
            (direction, name): digest_of(pairs)
            for direction, by_name in self._texts.items()
            for name, pairs in by_name.items()
        }
        self._kept, self._folder, self._warn = (
            ResultStore(folder / "more-tests"),
            folder / "translations",
            warn,
        )

    def pairs(self, direction: str) -> Mapping[str, ParallelText]:
        """The texts of a direction, by name."""
        return self._texts[direction]

    def missing(self, run: RunPlan, result: RunResult) -> list[str]:
        """Texts of its direction that a measured model has not translated."""
        return [name for name in self.pairs(result.direction) if not self._has(run, result, name)]

    def translate(self, run: RunPlan, result: RunResult) -> None:
        """Translate what is missing, with the model that was measured.

        Raises:
            ModelError: It is gone, or not sound.
            ResourceError: A file cannot be written.
        """
        missing, direction = self.missing(run, result), result.direction
        if not missing:
            return
        scorer = scorer_of(run, direction, self.pairs(direction)[missing[0]], self._warn, result.model)
        for name in missing:
            lines = scorer.translate(scorer.model, self.pairs(direction)[name].source.lines).lines
            keep_lines(self._place(run, direction, name), lines)
            self._kept.put(_label(run, direction, name), run.loaded, self._record(result, name))

    def lines(self, run: RunPlan, result: RunResult, name: str) -> list[str] | None:
        """The translation of a text by the model that was measured; None where there is none.

        Raises:
            DataError: It is damaged.
        """
        if not self._has(run, result, name):
            return None
        return read_text(self._place(run, result.direction, name)).lines

    def _has(self, run: RunPlan, result: RunResult, name: str) -> bool:
        stored = self._kept.get(_label(run, result.direction, name), run.loaded)
        return stored == self._record(result, name) and self._place(run, result.direction, name).exists()

    def _record(self, result: RunResult, name: str) -> dict[str, object]:
        return {"model": result.model, "text digest": self._digests[result.direction, name]}

    def _place(self, run: RunPlan, direction: str, name: str) -> Path:
        return self._folder / name / f"{run.label(direction)}.txt"


def _label(run: RunPlan, direction: str, name: str) -> str:
    return f"{run.label(direction)}.{name}"
