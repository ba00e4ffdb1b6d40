"""``deepwire recipes``: the run files shipped with the package."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from deepwire import plugins
from deepwire import recipes as store
from deepwire.cli.options import Json
from deepwire.errors import UsageError
from deepwire.io.json_lines import json_line
from deepwire.recipes.notes import read_note

if TYPE_CHECKING:
    from deepwire.model.config import ModelConfig
    from deepwire.recipes.notes import RecipeNote, RecipeParameter
    from deepwire.recipes.sizes import SizeCheck
    from deepwire.runfile import RunFile

_ANY_SIZE = 1000
"""Of a vocabulary, where it does not matter."""

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
        bool, typer.Option("--resolved", help="Every setting, with defaults and what it extends.")
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
            metavar="[RECIPE]...", help="Recipes, or folders such as papers/dlcl-2019; all if none."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Count the parameters of recipes and compare them with the printed numbers.

    A count fits if it rounds to the printed digits. Where a printed number is known not to follow from the
    model, the reason is shown. Exit code 1 if any other count does not fit. Recipes of figures are built with
    every value of their parameters.
    """
    chosen = [recipe for name in names for recipe in store.below(name)] if names else store.names()
    checks = list(_checks(chosen))
    values = _build_with_all_values(chosen)
    if as_json:
        _print_json(checks)
    else:
        _print_checks(checks, len(chosen) - len(checks), values)
    if any(check.verdict == "differs" for _, _, check in checks):
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
    return "\n".join([row, *(f"{name}={_values(parameter)}" for name, parameter in note.parameters.items())])


def _values(parameter: RecipeParameter) -> str:
    return ", ".join(map(str, parameter.values))


def _build_with_all_values(names: Sequence[str]) -> dict[str, dict[str, RecipeParameter]]:
    """Build the models of recipes with parameters, one value after the other; the parameters by recipe.

    Raises:
        UsageError: A value does not suit its recipe.
    """
    from deepwire.runfile import load_run_file

    parameters_of = {name: note.parameters for name in names if (note := read_note(name)).parameters}
    for name, parameters in parameters_of.items():
        for key, parameter in parameters.items():
            for value in parameter.values:
                try:
                    config = load_run_file(name, [f"{key}={value}"]).config
                except UsageError as error:
                    raise UsageError(f"recipe {name} with {key}={value}: {error.message}") from None
                _count(config.model, _ANY_SIZE, _ANY_SIZE, _languages(config))
    return parameters_of


def _checks(names: Sequence[str]) -> Iterator[tuple[str, RecipeNote, SizeCheck]]:
    """Every recipe of `names` with a printed size, counted."""
    from deepwire.recipes.sizes import SizeCheck
    from deepwire.runfile import load_run_file

    counts: dict[tuple[str, int, int, int], int] = {}
    for name in names:
        note = read_note(name)
        if note.size is None:
            continue
        config = load_run_file(name).config
        languages = _languages(config)
        key = (config.model.model_dump_json(), *note.size.vocabularies, languages)
        if key not in counts:
            counts[key] = _count(config.model, *note.size.vocabularies, languages)
        yield name, note, SizeCheck(note.size, counts[key])


def _languages(config: RunFile) -> int:
    return len(config.data.languages.names) if config.data.languages else 0


def _count(model: ModelConfig, source_vocabulary: int, target_vocabulary: int, languages: int) -> int:
    """All parameters of a model; no memory is taken for their values."""
    from deepwire.model.cost import meta_model

    built = meta_model(model, source_vocabulary, target_vocabulary, languages)
    return sum(parameter.numel() for parameter in built.parameters())


def _print_json(checks: Sequence[tuple[str, RecipeNote, SizeCheck]]) -> None:
    for name, note, check in checks:
        source, target = check.published.vocabularies
        record = {
            "recipe": name,
            "paper": note.paper,
            "row": note.row,
            "printed": check.published.printed,
            "counted": check.counted,
            "difference_millions": float(check.difference),
            "vocabulary": {"source": source, "target": target},
            "verdict": check.verdict,
            "reason": check.published.differs if check.verdict == "known" else "",
        }
        print(json_line(record))


def _print_checks(
    checks: Sequence[tuple[str, RecipeNote, SizeCheck]],
    without: int,
    values: Mapping[str, Mapping[str, RecipeParameter]],
) -> None:
    verdicts = {"fits": "fits", "known": "differs, reason below", "differs": "DOES NOT FIT"}
    _print_table(
        ("recipe", "paper", "ours", "difference", ""),
        [
            (
                name,
                check.published.printed,
                check.counted_as_printed,
                check.difference_as_printed,
                verdicts[check.verdict],
            )
            for name, _, check in checks
        ],
    )
    known = [(name, note, check) for name, note, check in checks if check.verdict == "known"]
    if known:
        print("\nPrinted numbers that are known not to follow from the model:")
    for name, note, check in known:
        print(f"- {name} ({note.row}): {check.published.differs}")
    if values:
        print("\nRecipes of figures, built with every value:")
    for name, parameters in values.items():
        print(f"- {name}: {'; '.join(f'{key}={_values(given)}' for key, given in parameters.items())}")
    number = {verdict: sum(check.verdict == verdict for _, _, check in checks) for verdict in verdicts}
    print(
        f"\n{number['fits']} fit, {number['known']} are known not to, {number['differs']} do not fit; "
        f"{without} recipes have no printed size"
    )


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
