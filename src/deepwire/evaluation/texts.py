"""Texts for scoring, one sentence a line: from files, of the test sets of a run, or translated by a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from deepwire.data.data_config import CorpusConfig, DataConfig, serves
from deepwire.data.languages import Direction, Languages, named_direction
from deepwire.data.text.corpus import by_reference, corpus_files, directed, read_pairs
from deepwire.data.text.files import BadLine, display, read_lines
from deepwire.data.text.pairs import Pair
from deepwire.errors import DataError, LogFn, ModelError, UsageError
from deepwire.io.regular_files import read_regular

if TYPE_CHECKING:
    from deepwire.decoding.translator import Translator

RESOLVED_CONFIG = "config.resolved.json"
_FAULTS = {"nul": "contains a NUL character", "too_long": "is too long", "bad_utf8": "is not UTF-8"}
_NAME_FILES = "give the test set: --source and --reference, from Python source= and reference="


@dataclass(frozen=True)
class Text:
    """A text to be scored or to score against.

    Attributes:
        name: In tables and messages.
        lines: One sentence each.
        more: Further references of the same sentences; only a reference has some.
        precision: Number format in which a model made it; empty where that is not known.
    """

    name: str
    lines: list[str]
    more: tuple[Text, ...] = ()
    precision: str = ""

    @property
    def references(self) -> tuple[Text, ...]:
        """This one and the further ones."""
        return (Text(self.name, self.lines), *self.more)

    @property
    def answers(self) -> list[list[str]]:
        """The lines of each reference, as metrics take them."""
        return [text.lines for text in self.references]

    def only(self, rows: Iterable[int]) -> Text:
        """Some of the lines, of each reference."""
        chosen = list(rows)
        more = tuple(text.only(chosen) for text in self.more)
        return Text(self.name, [self.lines[row] for row in chosen], more)


def read_text(path: Path) -> Text:
    """Reads a text file, plain or compressed; `-` is stdin.

    Raises:
        DataError: The file is missing, empty, damaged, or a line is not text.
    """
    name = display(path)
    lines: list[str] = []
    for number, line in enumerate(read_lines(path), start=1):
        if isinstance(line, BadLine):
            raise DataError(f"{name}:{number}: {_FAULTS[line.fault]}", "scoring needs every line; repair it")
        lines.append(line)
    if not lines:
        raise DataError(f"{name} is empty")
    return Text(name, lines)


@dataclass(frozen=True)
class SearchSettings:
    """Where a model runs, and what to change in its decoding settings.

    Attributes:
        decoding: Values that replace the model's own: `{"beam": 8}`.
        device: As in `deepwire.load`.
        precision: As in `deepwire.load`.
        shortlist: Whether to use the shortlist of the model; `seen`: the subwords that were seen in training
            text of the target language; or the folder of another one.
        direction: The direction of the text, for models of several.
    """

    decoding: Mapping[str, object]
    device: str = "auto"
    precision: str = "auto"
    shortlist: bool | str | Path = False
    direction: Direction | None = None


def load_translator(model: str, settings: SearchSettings, warn: LogFn) -> Translator:
    """Loads a model as the settings say; errors as of `deepwire.load`."""
    from deepwire.decoding.model_loading import load  # torch; late, so that wrong files are found before

    return load(
        model,
        settings.device,
        settings.precision,
        settings=settings.decoding,
        warn=warn,
        shortlist=settings.shortlist,
    )


def translate(name: str, translator: Translator, source: Text, direction: Direction | None) -> Text:
    """Translates a text with a loaded model; the result gets the name."""
    to = from_ = None
    if direction is not None and translator.languages is not None:
        to, from_ = direction.target, direction.source
    translations = translator.translate(source.lines, to=to, from_=from_)
    return Text(name, translations, precision=translator.precision)


def metadata(model: str) -> Mapping[str, object]:
    """The description stored with a model; errors as of `find_model`."""
    from deepwire.checkpoint.model_path import find_model  # torch
    from deepwire.checkpoint.store import read_metadata

    return read_metadata(find_model(model))


def selected_target(model: str, direction: Direction | None) -> str:
    """The target language that a model has to be given; `""` where it has one direction and no tags.

    Raises:
        UsageError: The model says that it does not translate in the direction, or has several and none is
            named.
        ModelError: There is no such model, or it is damaged.
    """
    described = metadata(model)
    languages = Languages.from_metadata(described)
    if languages is None:
        only = named_direction(described)
        if direction is not None and only is not None and only != direction:
            raise UsageError(f"{model}: translates {only}, not {direction}", "name a direction that it has")
        return ""
    if direction is None:
        if len(languages.directions) == 1:
            return languages.directions[0].target
        known = ", ".join(map(str, languages.directions))
        raise UsageError(f"{model}: has several directions", f"choose one: --direction {known}")
    languages.require_source(direction.source)
    languages.target(direction.target)
    return direction.target


def selected_targets(models: Sequence[str], direction: Direction | None) -> list[str]:
    """`selected_target` of several models for one text; errors also as of `require_one_direction`."""
    targets = [selected_target(model, direction) for model in models]
    require_one_direction(models)
    return targets


def require_one_direction(models: Iterable[str]) -> None:
    """Raises a UsageError where two models of one direction each translate in different ones."""
    first: tuple[str, Direction] | None = None
    for model in models:
        direction = named_direction(metadata(model))
        if direction is None:
            continue
        first = first or (model, direction)
        if direction != first[1]:
            raise UsageError(
                f"{model} translates {direction}, and {first[0]} {first[1]}: one text cannot be for both",
                "score them in two commands; evaluate-directions compares systems in several directions",
            )


def target_language(model: str, direction: Direction | None = None) -> str:
    """The language that a model translates into, as far as a direction or its run file names it; or `""`."""
    return named_target(metadata(model)) if direction is None else direction.target


def named_target(description: Mapping[str, object]) -> str:
    """The target language in the description of a model; `""` where its run file names none, or several."""
    target = description.get("target")
    return target if isinstance(target, str) and target != DataConfig.model_fields["target"].default else ""


def test_set(model: str) -> tuple[Text, Text]:
    """Source and reference of the test set that the run file of a run names as `data.test`.

    Raises:
        UsageError: It is no run directory, or its run file names no test set.
        ModelError: Its stored settings are damaged.
        DataError: The test set is missing or cannot be read.
    """
    data = data_section(model)
    if data.text is not None:
        from deepwire.checkpoint.store import require_translation  # torch

        require_translation(model, {"text": data.text})
    if data.test is None:
        raise UsageError(f"{_stored(model)}: the run file names no data.test", _NAME_FILES)
    if data.languages is not None:
        raise UsageError(
            f"{_stored(model)}: the run has several directions",
            "choose one with --direction where the command has it, give --source and --reference, "
            "or use deepwire evaluate-directions",
        )
    return read_test_set(data.test[0], data)


def test_files(model: str) -> list[Path]:
    """The files of `data.test` of a run, so that none is written over; none where there is no such text."""
    try:
        data = data_section(model)
        return [path for corpus in directed(data, "test") for path in corpus_files(corpus, data)]
    except (UsageError, ModelError, DataError):
        return []


def read_test_set(corpus: CorpusConfig, data: DataConfig) -> tuple[Text, Text]:
    """Source and reference of a test set in the one direction of a run file, whole.

    Raises:
        DataError: It is missing, or a line cannot be used.
    """
    sources, references = list[Text](), list[Text]()
    for part in by_reference(corpus, data):
        pairs = usable_pairs(part, data)
        sources.append(Text(f"{corpus.label} ({data.source})", [pair.source for pair in pairs]))
        references.append(Text(f"{part.label} ({data.target})", [pair.target for pair in pairs]))
    return sources[0], Text(references[0].name, references[0].lines, tuple(references[1:]))


def usable_pairs(corpus: CorpusConfig, data: DataConfig) -> list[Pair]:
    """All pairs of a corpus; raises a DataError where one cannot be used."""
    pairs = list(read_pairs(corpus, data))
    if bad := next((pair for pair in pairs if pair.fault), None):
        raise DataError(
            f"{corpus.label}:{bad.line}: the pair cannot be used ({bad.fault})",
            "scoring needs every line; repair it",
        )
    return pairs


def data_section(model: str) -> DataConfig:
    """The `data` section of the run file of a run.

    Raises:
        UsageError: It is no run directory.
        ModelError: Its stored settings are damaged.
    """
    stored = _stored(model)
    try:
        data = json.loads(read_regular(stored))["data"]
        # A run of an earlier version may have settings that are no more; none of them says what text is read.
        return DataConfig.model_validate({key: data[key] for key in data if key in DataConfig.model_fields})
    except FileNotFoundError:
        raise UsageError(
            f"{model} is not a run directory with a stored run file, so its test set is not known",
            _NAME_FILES,
        ) from None
    except OSError as error:
        raise ModelError(f"{stored}: cannot read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise ModelError(f"{stored} is damaged: it does not hold the settings of a run") from error


def _stored(model: str) -> Path:
    return Path(model.rpartition("@")[0] or model) / RESOLVED_CONFIG


def parse_direction(text: str) -> Direction:
    """Reads `de-en`; a UsageError for what is no direction."""
    try:
        return Direction.parse(str(text))  # Python callers may give a `Direction`, or what is none
    except ValueError as error:
        raise UsageError(str(error), "write source and target language, like de-en or en-zh_CN") from None


@dataclass(frozen=True)
class DirectedTexts:
    """Parallel text that can be read in any direction between its languages.

    Attributes:
        name: As reports call it.
        corpora: As a run file names them.
        more: Further references of the one corpus, in its own direction, each as a corpus with its source.
    """

    name: str
    corpora: tuple[CorpusConfig, ...]
    more: tuple[CorpusConfig, ...] = ()

    def has(self, direction: Direction) -> bool:
        """Whether there is text for a direction."""
        try:
            return any(
                all(path.exists() for path in corpus_files(corpus, data))
                for data, corpus in self._in_direction(direction, self.corpora)
            )
        except DataError:  # a side of a prefix is missing
            return False

    def read(self, direction: Direction) -> tuple[Text, Text]:
        """Source and reference of a direction, whole.

        Raises:
            DataError: There is none, a side is missing or damaged, or a line cannot be used.
        """
        corpora = self._in_direction(direction, self.corpora)
        pairs = [pair for data, corpus in corpora for pair in usable_pairs(corpus, data)]
        if not pairs:
            raise DataError(
                f"{self.name}: no test set for {direction}",
                "leave the direction out, or name others with --test",
            )
        # In the other direction further references would be sources.
        own = [corpus for corpus in self.more if (corpus.source, corpus.target) == tuple(direction)]
        more = [
            Text(f"{corpus.label} ({direction.target})", [pair.target for pair in usable_pairs(part, data)])
            for corpus in own
            for data, part in self._in_direction(direction, [corpus])
        ]
        name = f"{self.name} {direction}"
        return (
            Text(f"{name} ({direction.source})", [pair.source for pair in pairs]),
            Text(f"{name} ({direction.target})", [pair.target for pair in pairs], tuple(more)),
        )

    def _in_direction(
        self, direction: Direction, corpora: Sequence[CorpusConfig]
    ) -> list[tuple[DataConfig, CorpusConfig]]:
        """The corpora that have the direction, each with the settings to read it."""
        served = [
            # The other languages of a text are not in this direction, and are not to be asked for.
            corpus.model_copy(update={"languages": None, "directions": None})
            for corpus in corpora
            if serves(corpus, direction)
        ]
        if not served:
            return []
        section = {"directions": [str(direction)], "on_bad_utf8": "skip", "train": served, "test": served}
        data = DataConfig.model_validate(section)
        return [(data, corpus) for corpus in directed(data, "test")]


def texts_of_run(model: str) -> DirectedTexts:
    """The test sets of every direction of a run, with or without `@checkpoint`.

    Raises:
        UsageError: It is no run directory, or its run file names no test set, or no languages.
        ModelError: Its stored settings are damaged.
    """
    return texts_of(data_section(model), model)


def texts_of(data: DataConfig, name: str) -> DirectedTexts:
    """The test sets of a run file, which an error calls `name`.

    Raises:
        UsageError: It names none, or no languages.
    """
    corpora = data.corpora().get("test")
    if corpora is None:
        raise UsageError(f"{name}: the run file names no data.test", "name the texts with --test")
    called, more = ", ".join(corpus.label for corpus in corpora), list[CorpusConfig]()
    if data.languages is None:  # one direction: say which, so that the text can be read the other way, too
        parse_direction(f"{data.source}-{data.target}")
        first, *more = by_reference(corpora[0], data)
        sides = {"source": data.source, "target": data.target}
        corpora, more = ([corpus.model_copy(update=sides) for corpus in part] for part in ([first], more))
    return DirectedTexts(called, tuple(corpora), tuple(more))


def texts_at(place: str) -> DirectedTexts:
    """The test sets at a place: the folder of OPUS-100, or a prefix, in which `{pair}` stands for `de-en`."""
    folder = Path(place)
    is_opus100 = any((folder / part / "supervised").is_dir() for part in ("", "v1.0"))
    corpus = CorpusConfig(opus100=folder) if is_opus100 else CorpusConfig(prefix=folder)
    return DirectedTexts(place, (corpus,))
