"""``deepwire recipes``: the run files shipped with the package."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(invoke_without_command=True, no_args_is_help=False)


@app.callback()
def recipes(context: typer.Context) -> None:
    """List the recipes: name, description, paper and row, published scores.

    Train one with `deepwire train NAME key.sub=value`, or write `extends: NAME` into a run file.
    """
    if context.invoked_subcommand is None:
        _list()


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A recipe, such as multi30k/transformer-tiny.")],
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Every setting, with defaults and what it extends.")
    ] = False,
) -> None:
    """Print the YAML of a recipe."""
    from deepwire import recipes as store

    path = store.find(name)
    if path is None:
        raise store.unknown(name)
    if not resolved:
        print(path.read_text(encoding="utf-8"), end="")
        return
    import yaml

    from deepwire.runfile import load_run_file

    print(yaml.safe_dump(load_run_file(name).resolved, sort_keys=False, allow_unicode=True), end="")


def _list() -> None:
    import sys

    from rich.console import Console
    from rich.table import Table

    from deepwire import recipes as store
    from deepwire.recipes.notes import read_note

    table = Table(box=None, pad_edge=False)
    for title in ("recipe", "description", "paper", "published", "parameters"):
        table.add_column(title, overflow="fold", no_wrap=title == "recipe")
    for name in store.names():
        note = read_note(name)
        paper = ", ".join(part for part in (note.paper, note.row) if part)
        scores = "\n".join(f"{test} {score}" for test, score in note.published.items())
        table.add_row(
            name, note.description, paper, scores, f"{note.parameters:,}" if note.parameters else ""
        )
    width = None if sys.stdout.isatty() else 160
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
    # Written by ourselves, so that a closed pipe is handled where all closed pipes are.
    sys.stdout.write(captured.get())
