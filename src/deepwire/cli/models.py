"""``deepwire models``: list and get models that others trained, and offer models to others."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from deepwire.cli.line_by_line import tell, warn
from deepwire.cli.options import Json, Model
from deepwire.errors import UsageError
from deepwire.io.json_lines import json_line
from deepwire.io.progress_line import ProgressLine
from deepwire.io.regular_files import read_json

if TYPE_CHECKING:
    from deepwire.checkpoint.model_registry import RegisteredModel, RegisteredScore, Shelf

app = typer.Typer(help="List and download trained models; add one to a registry.", no_args_is_help=True)

# Where models come from when no --registry says it.
_VARIABLE = "DEEPWIRE_MODELS"

RegistryPlace = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL|FOLDER",
        help=f"Address or folder with models.json. Default: the environment variable {_VARIABLE}.",
    ),
]


@app.command("list")
def list_models(registry: RegistryPlace = None, as_json: Json = False) -> None:
    """List the models of a registry: directions, size, licence, and scores with their signatures.

    Example: deepwire models list --registry https://host/models
    """
    shelf = _shelf(registry)
    if as_json:
        print(json_line([model.model_dump() for model in shelf.models.values()]))
        return
    for model in shelf.models.values():
        _show(model)
    if not shelf.models:
        tell(f"{shelf.place}: has no models")


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a model, as `list` shows it.")],
    registry: RegistryPlace = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="New folder. Default: models/NAME.")
    ] = None,
) -> None:
    """Download a model into a new folder, and verify the digest of every file.

    The same command continues an interrupted download.

    Example: deepwire models get multi30k-de-en --registry https://host/models
    """
    shelf = _shelf(registry)
    model, target = shelf.find(name), to or Path("models") / name
    with ProgressLine(transient=False) as line:
        shelf.get(name, target, partial(line.count, "downloaded", unit="bytes"))
    print(f"{target} (licence: {model.licence})")
    tell(f"next: deepwire translate {target}")


@app.command()
def add(
    model: Model,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of the registry; created if missing.")
    ],
    name: Annotated[str, typer.Option("--name", help="Name in the registry, such as multi30k-de-en.")],
    licence: Annotated[str, typer.Option("--licence", help="Licence: SPDX identifier or text.")],
    description: Annotated[str, typer.Option("--description", help="One line about the model.")] = "",
    scores: Annotated[
        list[Path] | None,
        typer.Option("--scores", metavar="FILE", help="Output of `deepwire evaluate --json`; repeatable."),
    ] = None,
    test: Annotated[str, typer.Option("--test", help="Name of the test set of the scores.")] = "test",
) -> None:
    """Copy a model into a registry: a folder with models.json, which any web server can offer.

    Example: deepwire models add runs/demo@avg2 shelf --name multi30k-de-en --licence CC-BY-NC-4.0
    """
    from deepwire.checkpoint.model_path import find_model
    from deepwire.checkpoint.model_registry import register

    test_scores = [score for file in scores or () for score in _scores(file, test)]
    entry = register(
        folder, find_model(model), name=name, licence=licence, description=description, scores=test_scores
    )
    _show(entry)


def _shelf(registry: str | None) -> Shelf:
    from deepwire.checkpoint.model_registry import Shelf

    place = registry or os.environ.get(_VARIABLE)
    if not place:
        raise UsageError("no registry of models is named", f"give --registry URL, or set {_VARIABLE}")
    return Shelf(place, warn)


def _show(model: RegisteredModel) -> None:
    directions = ", ".join(model.directions[:6]) + (", ..." if len(model.directions) > 6 else "")
    print(f"{model.name}  {directions}  {model.size / 1e6:.1f} MB  {model.licence}")
    if model.description:
        print(f"  {model.description}")
    for score in model.scores:
        print(f"  {score.test}: {score.score:.2f}  {score.signature}")


def _scores(file: Path, test: str) -> list[RegisteredScore]:
    """The scores in what ``deepwire evaluate --json`` printed of one system."""
    from deepwire.checkpoint.model_registry import RegisteredScore

    try:
        (system,) = cast("list[dict[str, Any]]", read_json(file)["systems"])
        return [
            RegisteredScore(test=test, score=each["score"], signature=f"{each['name']}|{each['signature']}")
            for each in system["scores"]
        ]
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"--scores {file}: is not what 'deepwire evaluate --json' prints of one system"
        ) from None
