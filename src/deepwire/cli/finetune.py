"""``deepwire finetune``: from a trained model and text of one's own to a better model for such text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.options import DirectionName, Model, Overrides
from deepwire.cli.train import DryRunOption, Fresh, Quiet, run_training

if TYPE_CHECKING:
    from deepwire.runfile import LoadedRunFile
    from deepwire.training.session import Callback

Train = Annotated[
    list[str],
    typer.Option(
        metavar="TEXT",
        help="Parallel text as in data.train: a prefix (PREFIX.de and PREFIX.en), or "
        "'{source_file: a, target_file: b}', '{tsv: pairs.tsv}'; repeatable.",
    ),
]
Valid = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Validation text. Default: up to 500 pairs held out of --train."),
]
OldValid = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Validation text of the old domain, to measure forgetting.")
]


def finetune(
    model: Model,
    train: Train,
    overrides: Overrides = None,
    valid: Valid = None,
    old_valid: OldValid = None,
    direction: DirectionName = None,
    fresh: Fresh = False,
    dry_run: DryRunOption = False,
    quiet: Quiet = False,
) -> None:
    """Fine-tune a model on your own text, and compare it before and after.

    The vocabulary is kept. The same command continues an interrupted run; so does
    `deepwire train RUN/config.yaml`.

    deepwire finetune opus --train corpus/train --valid corpus/valid --old-valid news/valid

    deepwire finetune runs/demo --train corpus/train run=runs/mine training.freeze=encoder.*
    """
    from deepwire.api.finetune import OldDomain, compared, finetuning_run
    from deepwire.cli.line_by_line import tell

    def read() -> LoadedRunFile:
        return finetuning_run(model, train, valid, old_valid, direction, overrides or (), tell)

    def watch(loaded: LoadedRunFile) -> list[Callback]:
        return [OldDomain(loaded, old_valid)] if old_valid else []

    loaded = run_training(read, fresh=fresh, dry_run=dry_run, quiet=quiet, callbacks=watch)
    for block in () if loaded is None else compared(model, loaded, old_valid):
        print(block)
