"""Options of the commands that run models: `translate`, `score` and `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepwire.errors import UsageError

STDIO = Path("-")

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        help="Run directory (its best checkpoint), RUN@avg5 or model; several = an ensemble.",
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="File for the answers; - is stdout.")]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON object a line.")]
Beam = Annotated[
    int | None, typer.Option(min=1, help="Hypotheses per sentence; 1 = greedy. Default: the model's own.")
]
LengthPenalty = Annotated[
    float | None, typer.Option(help="Exponent of the length penalty; 0 = none. Default: the model's own.")
]
Groups = Annotated[
    str | None,
    typer.Option(
        metavar="4|3:6",
        help="Predict with one group or some groups of decoder layers alone. Default: the model's own.",
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Subwords with padding, times hypotheses, in a batch. Default: the model's own."
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        help="fp32, bf16; fp16 or int8: weights of so many bits (CPU); auto: the fast one here, never int8."
    ),
]
UseShortlist = Annotated[
    bool, typer.Option("--shortlist", help="Only subwords that `deepwire shortlist` found likely: faster.")
]
ShortlistFrom = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="The same, with a shortlist that lies elsewhere.")
]
Seen = Annotated[
    bool,
    typer.Option(
        "--seen",
        help="Only subwords that text of the target language has: see `deepwire shortlist --seen`.",
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto: a GPU if there is one.")]
Threads = Annotated[int | None, typer.Option(min=1, max=4096, help="CPU threads. Default: all.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No summary on stderr.")]


def chosen_shortlist(likely: bool, folder: Path | None, seen: bool) -> bool | str | Path:
    """Which shortlist the options ask for, as `deepwire.load` wants it.

    Raises:
        UsageError: Both kinds of them.
    """
    if seen and (likely or folder is not None):
        raise UsageError("--seen excludes --shortlist and --shortlist-from", "leave out one of them")
    return "seen" if seen else folder or likely
