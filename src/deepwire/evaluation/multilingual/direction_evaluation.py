"""From the names of systems and test sets to the table of all directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path

from deepwire.data.languages import Direction
from deepwire.errors import DataError, LogFn, UsageError
from deepwire.evaluation.comparison import PairedTest
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.evaluation.multilingual.directed_texts import texts_at, texts_of_run
from deepwire.evaluation.multilingual.direction_names import (
    HIGH,
    LOW,
    Group,
    languages_of,
    read_sizes,
    resource_groups,
)
from deepwire.evaluation.multilingual.direction_table import (
    DirectionFacts,
    DirectionsReport,
    DirectionTable,
    samples_for,
)
from deepwire.evaluation.multilingual.language_identification import LanguageIdentifier, train_identifier
from deepwire.evaluation.multilingual.translation_systems import (
    StoredSystem,
    StoredTranslations,
    digest_of,
    open_system,
    store_in,
)
from deepwire.evaluation.significance import DEFAULT_SAMPLES
from deepwire.evaluation.texts import SearchSettings, Text


@dataclass(frozen=True)
class DirectionAverages:
    """Which directions are averaged together, besides all of a kind.

    Attributes:
        centre: Directions out of it and into it are averaged apart.
        groups: Groups of languages, besides those by training size.
        sizes: A JSON file of training pairs; those recorded with the system when None.
        high: Training pairs from which a language is high-resource.
        low: Training pairs below which a language is low-resource.
    """

    centre: str = "en"
    groups: Sequence[Group] = ()
    sizes: Path | None = None
    high: int = HIGH
    low: int = LOW


@dataclass(frozen=True)
class DirectionsRequest:
    """The directions to evaluate, and how.

    Attributes:
        system: A model; a folder of `DIRECTION.hyp`; or a pattern with `{direction}`.
        baseline: To compare with, in the same forms.
        test: Test sets: a prefix or the folder of OPUS-100; `data.test` of the run when None.
        directions: All that the system has when empty.
        zero_shot: Evaluate also all directions of its languages that it was not trained on.
        trained: The trained directions; those that the system says when None, all if it does not.
        metrics: The metrics of each language; the first decides what is better.
        averages: Which directions are averaged together.
        paired: The test against the baseline; None for none.
        language_text: Training text to learn to tell languages apart from, as in `test`; when None, that of
            the run, and only if there are zero-shot directions.
        output: Folder for the translations of the system.
        search: How and where models translate.
    """

    system: str
    baseline: str | None = None
    test: str | None = None
    directions: Sequence[Direction] = ()
    zero_shot: bool = False
    trained: Sequence[Direction] | None = None
    metrics: LanguageMetrics = field(default_factory=LanguageMetrics)
    averages: DirectionAverages = field(default_factory=DirectionAverages)
    paired: PairedTest | None = field(default_factory=lambda: PairedTest("bootstrap"))
    language_text: str | None = None
    output: Path | None = None
    search: SearchSettings = field(default_factory=lambda: SearchSettings({}))


def evaluate_directions(request: DirectionsRequest, warn: LogFn, progress: LogFn) -> DirectionsReport:
    """Translates and scores direction by direction, and averages; `progress` hears of each.

    Raises:
        UsageError: A name, setting, direction or device is wrong.
        DataError: A text is missing or damaged, or two differ in their number of lines.
        ModelError: A model is missing or damaged.
        ResourceError: A translation cannot be written.
    """
    return _Evaluation(request, warn).run(progress)


class _Evaluation:
    """One request with everything opened; nothing is translated before all of it is known to be there."""

    def __init__(self, request: DirectionsRequest, warn: LogFn) -> None:
        self.request = request
        self.system = open_system(request.system, request.search, warn)
        self.baseline = open_system(request.baseline, request.search, warn) if request.baseline else None
        self.systems = [system for system in (self.system, self.baseline) if system is not None]
        only_texts = all(isinstance(system, StoredSystem) for system in self.systems)
        if only_texts and (request.search.decoding or request.search.shortlist):
            raise UsageError(
                "settings of decoding are for models, and there are only translations", "leave them out"
            )
        self.tests = texts_at(request.test, "test") if request.test else texts_of_run(request.system, "test")
        self.notes: list[str] = []
        self.directions = self._choose()
        self.trained = self.system.trained if request.trained is None else tuple(request.trained)
        sizes, centre = request.averages.sizes, request.averages.centre
        self.pairs = read_sizes(sizes, self.directions, centre) if sizes else dict(self.system.training_pairs)
        self.table = self._table()
        self.identifier = self._identifier()
        self.store: StoredTranslations | None = None

    def run(self, progress: LogFn) -> DirectionsReport:
        if self.request.output is not None:
            self.store = store_in(self.request.output, self.system.name, self.trained, self.pairs)
        formats = dict[str, None]()
        for direction in self.directions:
            source, reference = self.tests.read(direction)
            hypotheses = self._translation(direction, source)
            baseline = self.baseline.translate(direction, source) if self.baseline else None
            texts = filter(None, (hypotheses, baseline))
            formats.update((f"translated in {text.precision}", None) for text in texts if text.precision)
            about = DirectionFacts(
                direction=direction,
                zero_shot=self._zero_shot(direction),
                training_pairs=self.pairs.get(direction),
                right_language=self._right(hypotheses, direction.target),
                baseline_right_language=self._right(baseline, direction.target),
                reference_right_language=self._right(reference, direction.target),
            )
            row = self.table.add(about, reference, hypotheses, baseline, source)
            scores = ", ".join(f"{score.name} {score.value:.2f}" for score in row.scores)
            progress(f"{direction}: {len(reference.lines):,} lines, {scores}")
        return self.table.report(
            self.system.name,
            self.baseline.name if self.baseline else None,
            self.tests.name,
            [*formats, *self.request.metrics.notes, *self.notes],
        )

    def _choose(self) -> list[Direction]:
        self._check(self.request.directions)
        chosen = list(self.request.directions) or list(self.system.available() or ())
        name = self.system.name
        if not chosen:
            raise UsageError(f"{name} does not say which directions it has", "use --directions en-de,de-en")
        if self.request.zero_shot:
            if len(self.system.languages) < 2:
                raise UsageError(f"the languages of {name} are not known", "name directions: --directions")
            pairs = (Direction(*pair) for pair in permutations(self.system.languages, 2))
            chosen += [pair for pair in pairs if pair not in chosen and self.tests.has(pair)]
        chosen = self._with_tests(chosen)
        self._check([direction for direction in chosen if direction not in self.request.directions])
        return chosen

    def _check(self, directions: Sequence[Direction]) -> None:
        for direction in directions:
            for system in self.systems:
                system.check(direction)

    def _with_tests(self, chosen: list[Direction]) -> list[Direction]:
        """The directions that can be scored; one that was asked for by name must be among them."""
        testable = [direction for direction in chosen if self.tests.has(direction)]
        missing = [direction for direction in chosen if direction not in testable]
        if missing and (self.request.directions or not testable):
            self.tests.read(missing[0])  # says what is missing
            raise DataError(f"{self.tests.name}: no test set for {missing[0]}")
        if missing:
            self.notes.append(f"there is no test set for {', '.join(map(str, missing))}: left out")
        return testable

    def _table(self) -> DirectionTable:
        request, averages = self.request, self.request.averages
        for direction in self.directions:  # a missing tokenizer is said now
            request.metrics.of(direction.target)
        paired = request.paired if self.baseline else None
        if paired is not None:
            paired.check(2)
            if paired.samples is None:  # with the usual number no p-value may pass Holm's correction
                needed = 2 * samples_for(len(self.directions), paired.test)
                paired = replace(paired, samples=max(DEFAULT_SAMPLES[paired.test], needed))
        known = languages_of(self.directions)
        if averages.centre not in (*known, DirectionAverages.centre):
            raise UsageError(
                f"--centre {averages.centre}: no direction of the table has it", f"it has {', '.join(known)}"
            )
        by_size = resource_groups(self.pairs, averages.centre, high=averages.high, low=averages.low)
        for group in averages.groups:
            group.check(self.directions)
        return DirectionTable(request.metrics.of, averages.centre, [*averages.groups, *by_size], paired)

    def _identifier(self) -> LanguageIdentifier | None:
        """Learned from the text that was named; else from that of the run, if a direction is zero-shot."""
        place = self.request.language_text
        if place is None and not any(map(self._zero_shot, self.directions)):
            return None
        known = sorted({*self.directions, *(self.trained or ())})
        try:
            texts = texts_at(place, "train") if place else texts_of_run(self.request.system, "train")
            return train_identifier({name: texts.lines(name, known) for name in languages_of(known)})
        except (UsageError, DataError) as error:
            if place is not None:
                raise
            self.notes.append(
                f"nobody looked whether translations are in the right language: {error.message}; "
                "name training text with --language-text"
            )
            return None

    def _zero_shot(self, direction: Direction) -> bool:
        return self.trained is not None and direction not in self.trained

    def _translation(self, direction: Direction, source: Text) -> Text:
        made = self.system.made_from(direction) if self.store is not None else None
        if self.store is None or made is None:
            return self.system.translate(direction, source)
        mark = digest_of(made, source.lines)
        stored = self.store.kept(direction, mark)
        if stored is not None:
            return Text(f"{self.system.name} {direction}", stored)
        translation = self.system.translate(direction, source)
        self.store.keep(direction, translation.lines, mark)
        return translation

    def _right(self, text: Text | None, language: str) -> float | None:
        if self.identifier is None or text is None:
            return None
        return self.identifier.share(text.lines, language)
