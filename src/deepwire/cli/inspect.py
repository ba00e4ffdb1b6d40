"""``deepwire inspect``: what a run file, recipe or model is made of, without training or loading weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire import recipes
from deepwire.cli.options import Json, Overrides
from deepwire.command_line import again
from deepwire.config.choice import plugins_of
from deepwire.config.counts import counted
from deepwire.config.section import written
from deepwire.errors import UsageError, harmless
from deepwire.io.json_lines import json_line

if TYPE_CHECKING:
    from deepwire.config.yaml_tree import PlainValue
    from deepwire.data.languages import Languages
    from deepwire.model.config import ModelConfig


@dataclass(frozen=True)
class Subject:
    """The architecture to inspect, the vocabulary sizes, where those come from, the languages."""

    name: str
    kind: str
    model: ModelConfig
    source_vocabulary: int
    """0: a language model."""
    target_vocabulary: int
    vocabulary_from: str
    languages: int
    named: Languages | None = None


def inspect(
    subject: Annotated[
        str, typer.Argument(metavar="RUNFILE|RECIPE|MODEL", help="Run file, recipe, run directory or model.")
    ],
    overrides: Overrides = None,
    as_json: Json = False,
    vocabulary_size: Annotated[
        int | None,
        typer.Option(min=5, max=2**31 - 1, help="Vocabulary size of each side, if none is prepared yet."),
    ] = None,
) -> None:
    """Count parameters, in total and per part, and show the settings of the architecture.

    Examples: deepwire inspect multi30k/depth-lstm-tiny model.d_model=256; deepwire inspect runs/demo --json
    """
    from deepwire.model.meta_init import meta_model

    if not recipes.is_run_file(subject) and (overrides or vocabulary_size):
        raise UsageError(
            f"{subject}: a trained model cannot be changed", "inspect its run file with key=value"
        )
    found = find_subject(subject, vocabulary_size, overrides or [])
    model = meta_model(found.model, found.source_vocabulary, found.target_vocabulary, found.languages)
    total, groups = sum(parameter.numel() for parameter in model.parameters()), model.parameter_groups()
    settings: dict[str, PlainValue] = found.model.model_dump(mode="json")
    if found.model.is_decoder_only:
        del settings["encoder"]
    if as_json:
        print(json_line(_record(found, total, groups, settings)))
        return
    _print(found, total, groups, settings)


def find_subject(name: str, vocabulary_size: int | None = None, overrides: Sequence[str] = ()) -> Subject:
    """The subject behind a run file, recipe or model; nothing is loaded or prepared.

    Args:
        name: Run file, recipe, run directory or model.
        vocabulary_size: Entries of each side, for a run file that does not say it.
        overrides: Changes to a run file.

    Raises:
        UsageError: There is no such thing, or the size of its vocabulary is not known.
        ModelError: The model is damaged.
    """
    if recipes.is_run_file(name):
        return _from_run_file(name, overrides, vocabulary_size)
    return _from_model(name)


def _from_run_file(name: str, overrides: Sequence[str], vocabulary_size: int | None) -> Subject:
    from deepwire.api.prepare import configured_vocabulary_size
    from deepwire.runfile import load_run_file

    config = load_run_file(name, overrides).config
    kind = "recipe" if recipes.find(name) is not None else "run file"
    listed, context = config.data.languages, config.data.context
    number = len(listed.names) if listed is not None else 0
    if config.model.languages.used and not number:
        raise UsageError(f"{name}: model.languages needs several target languages", "give data.directions")
    size, told = vocabulary_size, "--vocabulary-size"
    if size is None:
        size, told = configured_vocabulary_size(config.data), "data.vocabulary.size"
        if size is None:
            raise UsageError(
                f"{name}: the size of its vocabulary is not known before it is prepared",
                f"say it: {again('--vocabulary-size', 'N')}",
            )
        if listed is not None and listed.tags:
            size, told = size + listed.tags, f"{told} and {listed.tags} tags"
        if context.used:
            size, told = size + context.separators, f"{told} and the separator of data.context"
    return Subject(name, kind, config.model, *config.vocabulary_sizes(size), told, number, listed)


def _from_model(name: str) -> Subject:
    from deepwire.checkpoint.model_path import find_model
    from deepwire.checkpoint.store import (
        CONFIG,
        language_names,
        metadata_of,
        read_config,
        recorded_config,
        require_model,
    )
    from deepwire.data.languages import Languages
    from deepwire.errors import ModelError

    folder = find_model(name)
    require_model(folder)
    record = read_config(folder)
    sizes = [record.get("source_vocabulary"), record.get("target_vocabulary")]
    model = recorded_config(record, folder)
    source, target = (size if isinstance(size, int) else -1 for size in sizes)
    if source < (0 if model.is_decoder_only else 1) or target < 1:
        raise ModelError(f"{folder / CONFIG}: names no vocabulary sizes")
    metadata = metadata_of(record)
    languages, named = len(language_names(metadata)), Languages.from_metadata(metadata)
    return Subject(str(folder), "model", model, source, target, "the model", languages, named)


def _record(
    subject: Subject, total: int, groups: dict[str, int], settings: dict[str, PlainValue]
) -> dict[str, object]:
    return {
        "name": subject.name,
        "kind": subject.kind,
        "parameters": total,
        "parts": groups,
        "vocabulary": {
            "source": subject.source_vocabulary,
            "target": subject.target_vocabulary,
            "from": subject.vocabulary_from,
        },
        **({"languages": subject.languages} if subject.languages else {}),
        **({"plugins": [plugin.to_json() for plugin in used]} if (used := plugins_of(subject.model)) else {}),
        **({} if subject.named is None else {"translates": subject.named.to_metadata()}),
        "model": settings,
    }


def _print(subject: Subject, total: int, groups: dict[str, int], settings: dict[str, PlainValue]) -> None:
    sizes = f"{subject.source_vocabulary:,} source, {subject.target_vocabulary:,} target"
    if not subject.source_vocabulary:
        sizes = f"{subject.target_vocabulary:,}, of a language model"
    rows = [("parameters", f"{total:,}", "")]
    rows += [(name, f"{count:,}", f"{count / max(total, 1):6.1%}") for name, count in groups.items()]
    width = max(len(name) for name, _, _ in rows)
    number = max(len(count) for _, count, _ in rows)
    lines = [f"{subject.kind} {subject.name}", f"vocabulary: {sizes} (from {subject.vocabulary_from})"]
    lines += [f"target languages: {subject.languages}"] if subject.languages else []
    if subject.named is not None:
        listed = ", ".join(map(str, subject.named.directions))
        lines += [f"languages: {', '.join(subject.named.names)} (tag: {subject.named.tag})"]
        count = counted(len(subject.named.directions), "direction")
        lines += wrap(f"{count}: {listed}", 130, subsequent_indent="  ")
    lines += [f"plugin: {plugin}" for plugin in plugins_of(subject.model)]
    lines.append("")
    lines += [f"{name:<{width}}  {count:>{number}}  {share}".rstrip() for name, count, share in rows]
    lines += ["", *(f"{key}: {_inline(value)}" for key, value in settings.items())]
    print(harmless("\n".join(lines)))


def _inline(value: PlainValue) -> str:
    """Settings on one line: ``layers 4, connection depth_lstm (share gates)``."""
    if isinstance(value, dict):
        rest = ", ".join(f"{key} {_inline(below)}" for key, below in value.items() if key != "type")
        kind = value.get("type")
        return rest if kind is None else f"{kind} ({rest})" if rest else str(kind)
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return written(value)
