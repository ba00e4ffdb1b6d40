"""`deepwire prepare`: filter and segment the text of a run file once, for training."""

from __future__ import annotations

import json
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from deepwire.data.prepare.prepared import CheckRecord, Prepared


def prepare(
    run_file: Annotated[str, typer.Argument(metavar="RUN.yaml", help="Run file or recipe.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the run file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Filter and segment the text of a run file, learn its vocabulary, and keep the result for training.

    What was prepared before is used again until the text, the vocabulary or the filters change.
    `deepwire train` does the same when it starts.

    Examples: deepwire prepare run.yaml; deepwire prepare run.yaml data.vocabulary.size=4k --json
    """
    from deepwire.data.prepare import prepared as preparation
    from deepwire.runfile import load_run_file

    config = load_run_file(run_file, overrides or []).config
    progress = _Progress()
    start = time.monotonic()
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        made = preparation.prepare(config.data, seed=config.seed, progress=progress.show)
    finally:
        signal.signal(signal.SIGTERM, before)
        progress.end()
    seconds = time.monotonic() - start
    if as_json:
        print(json.dumps(_record(made, seconds), ensure_ascii=False))
    else:
        print("\n".join(_lines(made, seconds)))


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    """End as Ctrl-C does: helping processes and what is half-made go too."""
    raise SystemExit(128 + number)


class _Progress:
    """One line on standard error that counts; nothing where that is no terminal."""

    def __init__(self) -> None:
        self._live, self._next, self._what, self._width = sys.stderr.isatty(), 0.0, "", 0

    def show(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if not self._live or (what == self._what and now < self._next and done != total):
            return
        self._what, self._next = what, now + 0.2
        count = f" {done:,}" if done else ""
        share = f" of {total:,} pairs ({done / total:.0%})" if total else ""
        line = f"{what}{count}{share}"
        print(f"\r{line:<{self._width}}", end="", file=sys.stderr, flush=True)
        self._width = len(line)

    def end(self) -> None:
        if self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)


def _record(made: Prepared, seconds: float) -> dict[str, object]:
    words = made.vocabularies
    read = _pairs_read(made)
    return {
        "folder": str(made.folder),
        "reused": made.reused,
        **({"replaced": made.replaced} if made.replaced else {}),
        "digest": made.digest,
        "seconds": round(seconds, 2),
        "pairs_per_second": None if made.reused else round(read / max(seconds, 1e-9)),
        "vocabulary": {
            "type": words.type,
            "joint": words.joint,
            "source": words.source.size,
            "target": words.target.size,
            "digest": words.digest,
        },
        "train": {
            "pairs": len(made.train),
            "source_tokens": len(made.train.source_side.tokens),
            "target_tokens": len(made.train.target_side.tokens),
            "corpora": [
                {"pairs": part.stop - part.start, "weight": part.weight} for part in made.train.parts
            ],
        },
        "valid": None if made.valid is None else {"pairs": len(made.valid)},
        **({"mix": [share._asdict() for share in made.mix]} if made.mix else {}),
        "report": made.report,
    }


def _lines(made: Prepared, seconds: float) -> list[str]:
    from deepwire.data.batches.mixture import share_lines
    from deepwire.data.filtering.filter_report_text import printable

    lines = [line for role, report in made.report.items() for line in _report_lines(role, report)]
    lines += share_lines(made.mix, made.temperature) if made.mix else []
    words, train = made.vocabularies, made.train
    sizes = f"{words.source.size:,} source, {words.target.size:,} target"
    lines.append(f"vocabulary: {words.type}, {f'{words.source.size:,} joint' if words.joint else sizes}")
    tokens = len(train.source_side.tokens), len(train.target_side.tokens)
    per_line = " and ".join(f"{count / len(train):.1f}" for count in tokens)
    lines.append(f"subwords: {tokens[0]:,} source, {tokens[1]:,} target ({per_line} a line)")
    read = _pairs_read(made)
    lines.append(
        "nothing changed: used again"
        if made.reused
        else f"prepared {read:,} pairs in {seconds:.1f} s ({read / max(seconds, 1e-9):,.0f} pairs/s)"
    )
    lines += [printable(f"{made.replaced}; the text was prepared again")] if made.replaced else []
    lines.append(printable(f"folder: {made.folder}"))
    return lines


def _report_lines(role: str, report: CheckRecord) -> list[str]:
    from deepwire.data.filtering.filter_report_text import printable
    from deepwire.data.filtering.filters import REASONS
    from deepwire.data.text.wording import counted

    lines = [f"{role}: {report['kept']:,} of {counted(report['pairs'], 'pair')} kept"]
    for reason, dropped in report["dropped"].items():
        places = ", ".join(f"{place['corpus']}:{place['line']}" for place in dropped["examples"])
        more = ", ..." if dropped["count"] > len(dropped["examples"]) else ""
        meaning = REASONS.get(reason, reason)
        lines.append(f"  dropped {dropped['count']:,} {reason} ({meaning}): {printable(places)}{more}")
    return lines + [f"  warning: {printable(warning)}" for warning in report["warnings"]]


def _pairs_read(made: Prepared) -> int:
    return sum(report["pairs"] for report in made.report.values())
