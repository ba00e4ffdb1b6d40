"""Shared by the scripts: options, rounds in turn, and results as a Markdown table and JSON."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import machine

Item = TypeVar("Item")
RESULTS = Path(__file__).resolve().parent / "results"


def parser(description: str | None, threads: int | None = None) -> argparse.ArgumentParser:
    """The options of every script that writes results; `threads`: how many by default, None: all cores."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--threads", type=int, default=threads or os.cpu_count())
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--results", type=Path, default=RESULTS)
    made.add_argument("--name", help="in the names of the results, beside those of another run of the day")
    made.add_argument("--note", help="a remark for the results, such as what else the machine was doing")
    return made


def in_turns(items: Iterable[Item], rounds: int) -> Iterator[tuple[int, Item]]:
    """Every item in every round, in the opposite order in every other one: no item always follows another."""
    items = list(items)
    for number in range(rounds):
        yield from ((number, item) for item in (items if number % 2 == 0 else reversed(items)))


def table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (heads, *rows)]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:]]


def write(
    options: argparse.Namespace,
    kind: Sequence[str],
    title: str,
    lines: Sequence[str],
    record: Mapping[str, object],
) -> str:
    """Write lines as Markdown and the record as JSON, each with the machine, the day and the note.

    Args:
        options: Of `parser`.
        kind: Parts of the files' names.
        title: Of the Markdown.
        lines: Behind it.
        record: The raw figures.

    Returns:
        The Markdown.
    """
    figures = machine.description() | {"threads": options.threads}
    head = f"# {title}, CPU {machine.kind(figures)}, {figures['date']}"
    note = ["", options.note] if options.note else []
    text = "\n".join([head, "", *lines, "", f"Machine: {machine.in_words(figures)}", *note]) + "\n"
    options.results.mkdir(parents=True, exist_ok=True)
    stem = f"{machine.result_name(*kind, options.name)}_{figures['date']}"
    whole = {"machine": figures, "note": options.note, **record}
    (options.results / f"{stem}.md").write_text(text)
    (options.results / f"{stem}.json").write_text(json.dumps(whole, indent=1) + "\n")
    return text
