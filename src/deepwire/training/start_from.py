"""Fine-tuning: a new run that begins with the parameters of a trained model, moved by piece and by name.

A piece that both have keeps its row. A piece that is new begins as the mean of the rows of the pieces that
the old vocabulary cuts it into (Gee et al. 2022, Fast Vocabulary Transfer), or, where it knows none of them,
as the mean of all its ordinary rows.

A language that is new begins as the mean of the others. Where the other model has one value for all languages
(a plain norm, a bias of the output), every language begins with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from deepwire.checkpoint.model_files import fingerprint
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import LoadedModel, load_model, saved_buffers
from deepwire.config.counts import first_few
from deepwire.config.section import flatten, written
from deepwire.data.context import NO_CONTEXT, ContextConfig, separator_of
from deepwire.data.languages import Languages
from deepwire.data.subwords.base import SPECIAL_PIECES, UNK, Vocabulary
from deepwire.data.vocabulary import EOS, Vocabularies
from deepwire.errors import ModelError
from deepwire.model.build import build_model
from deepwire.model.meta_init import outline
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.training.config import StartFromSection
from deepwire.training.freezing import matches
from deepwire.training.spec import WarmStartReport

_SPECIAL = len(SPECIAL_PIECES)


@dataclass(frozen=True)
class RowMap:
    """Where the rows of a new vocabulary come from.

    Attributes:
        origins: For each new row the old rows whose mean it begins with; empty: that of all ordinary ones.
        taken: How many ordinary pieces keep their row.
        new: How many are not in the old vocabulary.
        dropped: How many ordinary pieces of the old vocabulary have no place in the new one.
    """

    origins: Sequence[Sequence[int]]
    taken: int
    new: int
    dropped: int

    def rows(self, old: Tensor) -> Tensor:
        """The new rows `[V_new, ...]` of the old ones `[V_old, ...]`."""
        general = old[_SPECIAL:].mean(0)
        return torch.stack(
            [
                old[origin[0]] if len(origin) == 1 else old[list(origin)].mean(0) if origin else general
                for origin in self.origins
            ]
        )


def map_rows(old: Vocabulary, new: Vocabulary) -> RowMap:
    """Where the rows of one side come from: the same string, or the strings that it is cut into.

    Raises:
        ModelError: They have no ordinary piece in common.
    """
    numbers = {piece: number for number, piece in enumerate(_pieces(old), _SPECIAL)}
    pieces = _pieces(new)
    origins: list[Sequence[int]] = [[number] for number in range(_SPECIAL)]
    for number, piece in enumerate(pieces, _SPECIAL):
        same = numbers.get(piece)
        cut = [same] if same is not None else old.encode(new.decode([number]))
        origins.append([row for row in cut if row != UNK])
    taken = len(numbers.keys() & set(pieces))
    if taken == 0:
        raise ModelError(
            "the vocabulary of the model to begin with has no piece in common with that of this run",
            "choose a vocabulary of the same type (data.vocabulary), or begin untrained",
        )
    return RowMap(origins, taken, len(pieces) - taken, len(numbers) - taken)


def with_tags(rows: RowMap, pieces: int, old: Languages | None, new: Languages | None) -> RowMap:
    """The rows of a vocabulary, then those of the tags of languages, which move by the languages' names.

    Args:
        rows: Those of the pieces.
        pieces: Entries of the old vocabulary, behind which its tags stand.
        old, new: The languages of both models; None in a model of one direction.
    """
    before = {} if old is None or old.tags == 0 else {name: pieces + i for i, name in enumerate(old.names)}
    wanted = new.names if new is not None and new.tags else ()
    # A language that is new begins as the mean of the tags that there are.
    tags = [[before[name]] if name in before else list(before.values()) for name in wanted]
    return replace(rows, origins=[*rows.origins, *tags])


def _pieces(vocabulary: Vocabulary) -> list[str]:
    return vocabulary.pieces(range(_SPECIAL, vocabulary.size))


def own_parameters(model: TranslationModel) -> frozenset[str]:
    """The names, all that they have, of the parameters of which each target language has its own."""
    if not model.languages:
        return frozenset()
    sizes = (model.source_vocabulary, model.target_vocabulary)
    build = partial(build_model, model.config, *sizes, languages=model.languages + 1)
    larger = outline(model.config, build)
    shapes = {name: parameter.shape for name, parameter in larger.named_parameters(remove_duplicate=False)}
    named = model.named_parameters(remove_duplicate=False)
    return frozenset(name for name, parameter in named if parameter.shape != shapes[name])


def by_language(
    values: Mapping[str, Tensor],
    old: TranslationModel,
    new: TranslationModel,
    before: Languages | None,
    after: Languages | None,
) -> dict[str, Tensor]:
    """The parameters of one model with those of languages as another model has them, `[L_new, ...]`.

    Args:
        values: Those of the old model, by all names, with the rows of the new vocabulary.
        old, new: The models.
        before, after: Their languages.
    """
    moved, there = dict(values), own_parameters(old)
    shapes = {name: parameter.shape for name, parameter in new.named_parameters(remove_duplicate=False)}
    places = {} if before is None else {language: place for place, language in enumerate(before.names)}
    wanted = () if after is None else after.names
    for name in own_parameters(new) & values.keys():
        value = values[name]
        if name in there:
            moved[name] = torch.stack(
                [value[places[language]] if language in places else value.mean(0) for language in wanted]
            )
        elif value.shape == shapes[name][1:]:
            moved[name] = value.expand(shapes[name])
    return moved


# What may differ freely: it changes no function, or shows in the names and shapes of parameters.
_FREE = (
    "dropout",
    "dropout.*",
    "initialization",
    "initialization.*",
    "max_length",
    "embeddings.tie",
    "encoder.layers",
    "decoder.layers",
    "languages.*",
)
_SHOWN = 6


@dataclass(frozen=True)
class StartReport(WarmStartReport):
    """The parameters that a run took over from a model.

    Attributes:
        model: The MODEL name.
        folder: The model directory that it stood for.
        fingerprint: Stands for all its files.
        loaded: Names of the parameters that have its values.
        missing: Names of those that it does not have; they begin untrained.
        reshaped: Likewise of those that it has in another shape.
        unexpected: Names that it has and this run has not.
        changed: Settings that differ, `model.key: old -> new`.
        vocabulary: Where the vocabulary differs, for each side the rows taken, new and dropped.
    """

    model: str
    folder: str
    fingerprint: str
    loaded: list[str]
    missing: list[str]
    reshaped: list[str]
    unexpected: list[str]
    changed: list[str]
    vocabulary: dict[str, dict[str, int]]

    def lines(self) -> list[str]:
        """The report for people."""
        lines = [f"started from {self.model} ({self.folder}): {len(self.loaded)} tensors taken over"]
        kinds = {
            "missing there, begin untrained": self.missing,
            "of another shape there, begin untrained": self.reshaped,
            "unexpected there, left out": self.unexpected,
            "changed": self.changed,
        }
        lines += [
            f"{len(names)} {kind}: {first_few(names, _SHOWN)}" for kind, names in kinds.items() if names
        ]
        lines += [
            f"{side} vocabulary: {rows['taken']} pieces keep their rows, {rows['new']} are new, "
            f"{rows['dropped']} are dropped"
            for side, rows in self.vocabulary.items()
        ]
        return lines


def start_from(
    config: StartFromSection,
    model: TranslationModel,
    vocabularies: Vocabularies,
    *,
    source_bos: bool,
    languages: Languages | None = None,
    context: ContextConfig = NO_CONTEXT,
) -> StartReport:
    """Fill an untrained model from a trained one.

    Args:
        config: Which, and what may differ.
        model: What is filled; what finds no value stays as it is.
        vocabularies: Those of the new run.
        source_bos: Whether sources of the new run begin with BOS.
        languages: Those of the new run; None with one direction.
        context: What of the document the new run reads. It may differ: a separator that is new begins as the
            end symbol.

    Raises:
        ModelError: There is no such model, it is damaged, or it differs in what is not allowed to.
    """
    folder = find_model(config.model)
    loaded = load_model(folder)
    before = Languages.from_metadata(loaded.metadata)
    changed = _changes(loaded, model, source_bos)
    if before is not None and languages is not None and before.tag != languages.tag:
        changed["data.tag"] = (before.tag, languages.tag)
    contexts = ContextConfig.from_metadata(loaded.metadata), context
    values, maps = _values(loaded, vocabularies, before, languages, contexts)
    values = by_language(values, loaded.model, model, before, languages)
    parameters = dict(model.named_parameters())
    there = {name: values[name] for name in parameters if name in values}
    reshaped = [name for name, value in there.items() if value.shape != parameters[name].shape]
    report = StartReport(
        config.model,
        str(folder),
        fingerprint(folder),
        loaded=[name for name in there if name not in reshaped],
        missing=[name for name in parameters if name not in there],
        reshaped=reshaped,
        unexpected=_unused(loaded.model, there.keys()),
        changed=[f"{key}: {written(old)} -> {written(new)}" for key, (old, new) in changed.items()],
        vocabulary={
            side: {"taken": rows.taken, "new": rows.new, "dropped": rows.dropped}
            for side, rows in maps.items()
        },
    )
    _refuse_what_is_not_allowed(config, report, changed, _depths(loaded, model))
    with torch.no_grad():
        for name in report.loaded:
            parameters[name].copy_(there[name])
    old, new = saved_buffers(loaded.model), saved_buffers(model)
    for name in old.keys() & new.keys():
        new[name].copy_(old[name])
    return report


def _values(
    loaded: LoadedModel,
    new: Vocabularies,
    before: Languages | None,
    languages: Languages | None,
    contexts: tuple[ContextConfig, ContextConfig],
) -> tuple[dict[str, Tensor], dict[str, RowMap]]:
    """The parameters of a model under all their names, with the rows of another vocabulary or other tags.

    `contexts` are those of the model and of the new run.
    """
    values = {
        name: parameter.detach() for name, parameter in loaded.model.named_parameters(remove_duplicate=False)
    }
    old = loaded.vocabularies
    had, wanted = contexts[0].used, contexts[1].used
    if old.digest == new.digest and before == languages and had == wanted:
        return values, {}
    source, target = (
        with_tags(map_rows(vocabulary, new_vocabulary), vocabulary.size, before, languages)
        for vocabulary, new_vocabulary in ((old.source, new.source), (old.target, new.target))
    )
    if wanted:  # the separator comes last
        source, target = (
            replace(rows, origins=[*rows.origins, [separator_of(side.size, before) if had else EOS]])
            for rows, side in ((source, old.source), (target, old.target))
        )
    tables = {"source_embedding.table.": source, "target_embedding.table.": target, "head.": target}
    for name, value in values.items():
        for part, rows in tables.items():
            if name.startswith(part):
                # Output biases of several languages have a column for each word.
                columns = name == "head.bias" and value.dim() == 2
                values[name] = rows.rows(value.t()).t() if columns else rows.rows(value)
    same = new.source is new.target and old.source is old.target
    return values, {"joint": source} if same else {"source": source, "target": target}


def _changes(
    loaded: LoadedModel, model: TranslationModel, source_bos: bool
) -> dict[str, tuple[object, object]]:
    """Settings that differ and say how the same parameters are used: key to (old, new)."""
    old, new = (flatten(each.config.model_dump(mode="json")) for each in (loaded.model, model))
    keys = [key for key in sorted(old.keys() | new.keys()) if not matches(key, _FREE)]
    changed = {f"model.{key}": (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}
    before = loaded.metadata.get("source_bos") is True
    return changed | ({"data.source_bos": (before, source_bos)} if before != source_bos else {})


def _unused(model: TranslationModel, used: Collection[str]) -> list[str]:
    """The parameters none of whose names is used; a shared one has several."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [several[0] for several in names.values() if not any(name in used for name in several)]


def _depths(loaded: LoadedModel, model: TranslationModel) -> dict[str, tuple[object, object]]:
    """Numbers of layers that differ: key to (old, new)."""
    sides: tuple[Side, Side] = ("encoder", "decoder")
    both = {side: [either.config.stack(side).layers for either in (loaded.model, model)] for side in sides}
    return {f"model.{side}.layers": (old, new) for side, (old, new) in both.items() if old != new}


def _refuse_what_is_not_allowed(
    config: StartFromSection,
    report: StartReport,
    changed: Mapping[str, tuple[object, object]],
    depths: Mapping[str, tuple[object, object]],
) -> None:
    """Name what differs without being allowed to, settings before the parameters that differ for them."""
    settings = {key: both for key, both in changed.items() if not matches(key, config.allow_changed)}
    options = dict.fromkeys(["allow_changed"] if settings else [])
    parameters: list[str] = []
    for kind, option, patterns, refused in (
        ("missing there", "allow_missing", config.allow_missing, report.missing),
        ("of another shape there", "allow_missing", config.allow_missing, report.reshaped),
        ("unexpected there", "allow_unexpected", config.allow_unexpected, report.unexpected),
    ):
        names = [name for name in refused if not matches(name, patterns)]
        if names:
            parameters.append(f"{len(names)} {kind}: {first_few(names, _SHOWN)}")
            options[option] = None
            settings |= {} if refused is report.reshaped else depths
    if not options:
        return
    lines = [f"{key} {written(new)}, there {written(old)}" for key, (old, new) in settings.items()]
    # What is not there belongs to another part, and leaves with it.
    same = " ".join(f"{key}={written(old)}" for key, (old, _) in settings.items() if old is not None)
    allow = ", ".join(f"training.start_from.{option}" for option in options)
    differing = "; ".join([*lines, *parameters])
    raise ModelError(
        f"training.start_from {config.model}: the model does not fit this run: {differing}",
        f"set {same or 'the model section as there'}, or allow it by name: {allow}",
    )
