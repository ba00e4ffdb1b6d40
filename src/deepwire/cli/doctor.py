"""``deepwire doctor``: whether a run is normal, and what to try where it is not."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from deepwire.cli.options import Json
from deepwire.config.counts import counted
from deepwire.errors import harmless
from deepwire.io.json_lines import json_line
from deepwire.io.progress_line import ProgressLine


def doctor(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run directory; training may be running.")],
    as_json: Json = False,
) -> None:
    """Diagnose a run: what is normal, what is odd, and one thing to try for each.

    Reads the run's log, settings, newest checkpoint and training text. What is odd comes first, the most
    likely cause before its consequences.

    Example: deepwire doctor runs/demo
    """
    from deepwire.lab.doctor import examine

    with ProgressLine() as line:
        signs = examine(run, partial(line.count, unit="pairs"))
    if as_json:
        print(json_line({"run": run, "signs": [asdict(sign) for sign in signs]}))
        return
    odd = sum(sign.state == "odd" for sign in signs)
    print(harmless(f"{run}: {counted(odd, 'sign is', 'signs are') if odd else 'nothing is'} odd"))
    for sign in signs:
        print(harmless(f"{sign.state:7} {sign.subject}: {sign.measured}"))
        if sign.advice:
            print(f"{'':7} try: {sign.advice}")
