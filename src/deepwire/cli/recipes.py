"""``deepwire recipes``: the run files shipped with the package."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from deepwire import plugins
from deepwire import recipes as store
from deepwire.cli import options as opt
from deepwire.config.counts import counted
from deepwire.io.json_lines import json_line
from deepwire.recipes.notes import read_note

if TYPE_CHECKING:
    from deepwire.recipes.notes import RecipeNote

app = typer.Typer(invoke_without_command=True, no_args_is_help=False)


@app.callback()
def recipes(context: typer.Context) -> None:
    """List the recipes: name, row of the paper, published scores and size.

    Train one with `deepwire train NAME key.sub=value`, or write `extends: NAME` into a run file. Where a row
    shows `layers=20, 25`, give one of these values or another: `deepwire train NAME layers=25`.
    """
    if context.invoked_subcommand is None:
        _list()


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A recipe, such as multi30k/transformer-tiny.")
    ],
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Every setting, also defaults and inherited ones.")
    ] = False,
) -> None:
    """Print the YAML of a recipe."""
    path = store.find(name)
    if path is None:
        raise store.unknown(name)
    if not resolved:
        print(path.read_text(encoding="utf-8"), end="")
        return
    from deepwire.runfile import load_run_file

    print(yaml.safe_dump(load_run_file(name).resolved, sort_keys=False, allow_unicode=True), end="")


@app.command()
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE]...", help="Recipes, or folders such as papers/dlcl-2019. Default: all."
        ),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Count the parameters of recipes and compare them with the numbers in the papers.

    A count fits if it rounds to the printed digits. Where a printed number is known not to follow from the
    model, the reason is shown. Exit code 1 if any other count does not fit.
    """
    chosen = [recipe for name in names for recipe in store.below(name)] if names else store.names()
    notes = {name: read_note(name) for name in chosen}
    rows, reasons, numbers = [], [], {"fits": 0, "known": 0, "differs": 0}
    verdicts = {"fits": "fits", "known": "differs, reason below", "differs": "DOES NOT FIT"}
    for name, note in notes.items():
        if note.size is None:
            continue
        count, size = _count(name, note.size.vocabularies), note.size
        verdict = size.verdict(count)
        numbers[verdict] += 1
        if as_json:
            print(json_line({"recipe": name, "printed": size.printed, "counted": count, "verdict": verdict}))
        digits = size.decimals + 2
        ours, difference = f"{count / 1e6:.{digits}f}M", f"{size.difference(count):+.{digits}f}M"
        rows.append((name, size.printed, ours, difference, verdicts[verdict]))
        reasons += [f"- {name} ({note.row}): {size.differs}"] if verdict == "known" else []
    if not as_json:
        _print_table(("recipe", "paper", "ours", "difference", ""), rows)
        if reasons:
            print("\nPrinted numbers that are known not to follow from the model:", *reasons, sep="\n")
        print(
            f"\n{numbers['fits']} fit, {numbers['known']} are known not to, {numbers['differs']} do not fit; "
            f"{counted(len(chosen) - len(rows), 'recipe')} without a printed size"
        )
    if numbers["differs"]:
        raise typer.Exit(1)


def _list() -> None:
    notes = {name: read_note(name) for name in store.names()}
    groups: dict[str, list[str]] = {}
    for name in notes:
        groups.setdefault(name.rpartition("/")[0], []).append(name)
    for folder, members in groups.items():
        paper, *more = dict.fromkeys(notes[name].paper for name in members)
        if paper and not more:
            print(f"{folder}: {paper}")
        _print_table(
            ("recipe", "row or description", "published", "parameters"),
            [
                (
                    name,
                    _row(notes[name], with_paper=bool(more)),
                    "\n".join(f"{test} {score}" for test, score in notes[name].published.items()),
                    getattr(notes[name].size, "printed", ""),
                )
                for name in members
            ],
        )
        print()
    if others := plugins.known():
        print("choices of other packages, for `type` in a run file, metrics for --metric:")
        _print_table(
            ("name", "choice of", "package"),
            [(other.name, other.kind, f"{other.package} {other.version}".strip()) for other in others],
        )


def _row(note: RecipeNote, *, with_paper: bool) -> str:
    paper = note.paper if with_paper else ""
    row = ": ".join(part for part in (paper, note.row) if part) if note.row else note.description
    values = {name: ", ".join(map(str, parameter.values)) for name, parameter in note.parameters.items()}
    return "\n".join([row, *(f"{name}={given}" for name, given in values.items())])


def _count(name: str, vocabularies: tuple[int, int]) -> int:
    """All parameters of a recipe's model; no memory is taken for their values."""
    from deepwire.runfile import load_run_file

    config = load_run_file(name).config
    languages = len(config.data.languages.names) if config.data.languages else 0
    return _parameters(config.model.model_dump_json(), *vocabularies, languages)


@cache
def _parameters(model: str, source_vocabulary: int, target_vocabulary: int, languages: int) -> int:
    from deepwire.model.config import ModelConfig
    from deepwire.model.meta_init import meta_model

    config = ModelConfig.model_validate_json(model)
    built = meta_model(config, source_vocabulary, target_vocabulary, languages)
    return sum(parameter.numel() for parameter in built.parameters())


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    numbers = {"parameters", "paper", "ours", "difference"}
    for title in titles:
        table.add_column(
            title,
            overflow="fold",
            no_wrap=title == "recipe" or title in numbers,
            justify="right" if title in numbers else "left",
        )
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 180, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    # Written by ourselves, so that a closed pipe is handled where all closed pipes are.
    sys.stdout.write(captured.get())
