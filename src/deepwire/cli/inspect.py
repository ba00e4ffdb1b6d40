"""``deepwire inspect``: what a run file, recipe or model is made of, without training or loading weights."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.config.tree import PlainValue
    from deepwire.data.config import DataConfig
    from deepwire.model.config import ModelConfig


@dataclass(frozen=True)
class _Subject:
    """What is inspected: the architecture, the vocabulary sizes, and where those come from."""

    name: str
    kind: str
    model: ModelConfig
    source_vocabulary: int
    target_vocabulary: int
    vocabulary_from: str


def inspect(
    subject: Annotated[
        str, typer.Argument(metavar="RUNFILE|RECIPE|MODEL", help="Run file, recipe, run directory or model.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the run file or recipe.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    vocabulary_size: Annotated[
        int | None,
        typer.Option(min=5, help="Entries of each side's vocabulary, where none is prepared yet."),
    ] = None,
) -> None:
    """Parameters in total and per part, and the settings of the architecture.

    Examples: deepwire inspect multi30k/depth-lstm-tiny model.d_model=256; deepwire inspect runs/demo --json
    """
    if _is_run_file(subject):
        found = _from_run_file(subject, overrides or [], vocabulary_size)
    else:
        found = _from_model(subject, overrides or [], vocabulary_size)
    total, groups = _count(found)
    settings: dict[str, PlainValue] = found.model.model_dump(mode="json")
    if as_json:
        print(json.dumps(_record(found, total, groups, settings), ensure_ascii=False))
        return
    _print(found, total, groups, settings)


def _is_run_file(name: str) -> bool:
    from deepwire import recipes

    if Path(name).suffix in {".yaml", ".yml"} or recipes.find(name) is not None:
        return True
    if Path(name).is_dir() or "@" in name:
        return False
    if not Path(name).exists():
        raise UsageError(f"{name}: no such run file, recipe or model", recipes.unknown(name).hint)
    return True


def _from_run_file(name: str, overrides: list[str], vocabulary_size: int | None) -> _Subject:
    from deepwire import recipes
    from deepwire.runfile import load_run_file

    config = load_run_file(name, overrides).config
    kind = "recipe" if recipes.find(name) is not None else "run file"
    if vocabulary_size is not None:
        return _Subject(name, kind, config.model, vocabulary_size, vocabulary_size, "--vocabulary-size")
    size = _configured_size(config.data)
    if size is None:
        raise UsageError(
            f"{name}: the size of its vocabulary is not known before it is prepared",
            "give --vocabulary-size N, or run 'deepwire prepare' first",
        )
    return _Subject(name, kind, config.model, size, size, "data.vocabulary.size")


def _configured_size(data: DataConfig) -> int | None:
    """The size that preparation will make the vocabulary, where the run file says it."""
    size = getattr(data.vocabulary, "size", None)
    return size if isinstance(size, int) else None


def _from_model(name: str, overrides: list[str], vocabulary_size: int | None) -> _Subject:
    if overrides or vocabulary_size is not None:
        raise UsageError(f"{name}: a trained model cannot be changed", "inspect its run file with key=value")
    from pydantic import ValidationError

    from deepwire.checkpoint.locate import resolve
    from deepwire.checkpoint.store import CONFIG, read_config
    from deepwire.errors import ModelError
    from deepwire.model.config import ModelConfig

    folder = resolve(name)
    record = read_config(folder)
    sizes = [record.get("source_vocabulary"), record.get("target_vocabulary")]
    try:
        model = ModelConfig.model_validate(record.get("model"))
    except ValidationError:
        raise ModelError(f"{folder / CONFIG}: not an architecture that this version knows") from None
    source, target = (size if isinstance(size, int) and size > 0 else None for size in sizes)
    if source is None or target is None:
        raise ModelError(f"{folder / CONFIG}: names no vocabulary sizes")
    return _Subject(str(folder), "model", model, source, target, "the model")


def _count(subject: _Subject) -> tuple[int, dict[str, int]]:
    """(all parameters, parameters per part); no memory is taken for the values."""
    import torch

    from deepwire.model.build import build_model

    with torch.device("meta"):
        model = build_model(subject.model, subject.source_vocabulary, subject.target_vocabulary)
    return sum(parameter.numel() for parameter in model.parameters()), model.parameter_groups()


def _record(
    subject: _Subject, total: int, groups: dict[str, int], settings: dict[str, PlainValue]
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
        "model": settings,
    }


def _print(subject: _Subject, total: int, groups: dict[str, int], settings: dict[str, PlainValue]) -> None:
    sizes = f"{subject.source_vocabulary:,} source, {subject.target_vocabulary:,} target"
    rows = [("parameters", f"{total:,}", "")]
    rows += [(name, f"{count:,}", f"{count / max(total, 1):6.1%}") for name, count in groups.items()]
    width = max(len(name) for name, _, _ in rows)
    number = max(len(count) for _, count, _ in rows)
    lines = [f"{subject.kind} {subject.name}", f"vocabulary: {sizes} (from {subject.vocabulary_from})", ""]
    lines += [f"{name:<{width}}  {count:>{number}}  {share}".rstrip() for name, count, share in rows]
    lines += ["", *(f"{key}: {_inline(value)}" for key, value in settings.items())]
    sys.stdout.write("\n".join(lines) + "\n")


def _inline(value: PlainValue) -> str:
    """Settings on one line: ``layers 4, connection depth_lstm (share gates)``."""
    if isinstance(value, dict):
        rest = ", ".join(f"{key} {_inline(below)}" for key, below in value.items() if key != "type")
        kind = value.get("type")
        return rest if kind is None else f"{kind} ({rest})" if rest else str(kind)
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
