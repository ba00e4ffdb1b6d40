"""Test sets besides ``data.test``: one text of a thousand sentences says little about the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from deepwire.analysis.models import Pairs
from deepwire.analysis.scored import digest_of
from deepwire.checkpoint.files import disk_errors, write_text
from deepwire.evaluation.texts import Text, read_text
from deepwire.results.kept import Kept
from deepwire.results.measuring import scorer_of
from deepwire.results.runs import RunPlan


class MoreTests:
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
        warn: Callable[[str], None],
    ) -> None:
        self._texts = {
            direction: {name: Pairs(*text) for name, text in own.items()} for direction, own in texts.items()
        }
        self._kept, self._folder, self._warn = Kept(folder / "more-tests"), folder / "translations", warn

    def pairs(self, direction: str) -> Mapping[str, Pairs]:
        """The texts of a direction, by name."""
        return self._texts[direction]

    def missing(self, run: RunPlan, direction: str) -> list[str]:
        """Texts that a run has not translated with its present settings."""
        return [name for name in self.pairs(direction) if self.lines(run, direction, name) is None]

    def translate(self, run: RunPlan, direction: str) -> None:
        """Translate what is missing, with the best checkpoint of a trained run.

        Raises:
            ModelError: It has no sound checkpoint.
            ResourceError: A file cannot be written.
        """
        missing = self.missing(run, direction)
        if not missing:
            return
        scorer = scorer_of(run, direction, self.pairs(direction)[missing[0]], self._warn)
        for name in missing:
            pairs, place = self.pairs(direction)[name], self._place(run, direction, name)
            lines = scorer.translate(scorer.model, pairs.source.lines).lines
            with disk_errors(place):
                place.parent.mkdir(parents=True, exist_ok=True)
            write_text(place, "".join(f"{line}\n" for line in lines))
            self._kept.put(_label(run, direction, name), run.loaded, {"text digest": digest_of(pairs)})

    def lines(self, run: RunPlan, direction: str, name: str) -> list[str] | None:
        """The translation of a text by a run with its present settings; None where there is none.

        Raises:
            DataError: It is damaged.
        """
        place = self._place(run, direction, name)
        found = self._kept.get(_label(run, direction, name), run.loaded)
        current = found == {"text digest": digest_of(self.pairs(direction)[name])}
        return read_text(place).lines if current and place.exists() else None

    def _place(self, run: RunPlan, direction: str, name: str) -> Path:
        return self._folder / name / f"{run.label(direction)}.txt"


def _label(run: RunPlan, direction: str, name: str) -> str:
    return f"{run.label(direction)}.{name}"
