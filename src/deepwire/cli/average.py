"""``deepwire average``: the mean of checkpoints as one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepwire.errors import UsageError
from deepwire.io.atomic import require_absent

Models = Annotated[list[str], typer.Argument(metavar="RUN | MODEL...", help="A run, or two or more models.")]
Last = Annotated[int | None, typer.Option(min=1, help="Average the last N checkpoints of a run. Default: 5.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="New folder, default RUN/averages/avgN.")]


def average(models: Models, last: Last = None, output: Output = None) -> None:
    """Average the parameters of checkpoints; the result is a model like any other.

    Examples: deepwire average runs/demo --last 2 --output demo-avg2; deepwire average runs/a runs/b -o mean
    """
    from deepwire.checkpoint.model_path import average_models, averaged, find_model, last_checkpoints
    from deepwire.checkpoint.run_directory import RunDirectory

    if len(models) > 1:
        if last is not None:
            raise UsageError(
                "--last is for the checkpoints of one run", "give one run directory, or leave it out"
            )
        if output is None:
            raise UsageError("no place for the average of several models", "add --output DIR")
        folders = [find_model(name) for name in models]
    else:
        run = RunDirectory(Path(models[0]))
        if output is None:
            print(averaged(run, last or 5))
            return
        folders = last_checkpoints(run, last or 5)
    require_absent(output)
    average_models(folders, output)
    print(output)
