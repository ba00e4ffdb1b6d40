"""`deepwire prepare`: filter and segment the text of a run file once, for training."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from deepwire.cli.options import Json, Overrides, RunFileName
from deepwire.errors import harmless
from deepwire.io.atomic import unwound_by_signals
from deepwire.io.json_lines import json_line
from deepwire.io.progress_line import ProgressLine

if TYPE_CHECKING:
    from deepwire.data.prepare.prepared import Prepared


def prepare(run_file: RunFileName, overrides: Overrides = None, as_json: Json = False) -> None:
    """Filter and segment the text of a run file, learn its vocabulary, and keep the result for training.

    What was prepared before is used again until the text, the vocabulary or the filters change.
    `deepwire train` does the same when it starts.

    Examples: deepwire prepare run.yaml; deepwire prepare run.yaml data.vocabulary.size=4k --json
    """
    from deepwire.ops.process import quick_start

    with quick_start():
        from deepwire.api.prepare import prepare as prepare_text
        from deepwire.runfile import load_run_file

    loaded = load_run_file(run_file, overrides or [])
    start = time.monotonic()
    # Helping processes go, too.
    with unwound_by_signals(), ProgressLine() as line:
        prepared = prepare_text(loaded, progress=partial(_show, line))
    seconds = time.monotonic() - start
    if as_json:
        print(json_line(_record(prepared, seconds)))
    else:
        print("\n".join(_lines(prepared, seconds)))


def _show(line: ProgressLine, activity: str, done: int, total: int | None) -> None:
    line.count(activity, done, total, "pairs" if total else "")


def _record(prepared: Prepared, seconds: float) -> dict[str, object]:
    words = prepared.vocabularies
    read = _pairs_read(prepared)
    return {
        "folder": str(prepared.folder),
        "reused": prepared.reused,
        "digest": prepared.digest,
        "seconds": round(seconds, 2),
        "pairs_per_second": None if prepared.reused else round(read / max(seconds, 1e-9)),
        "vocabulary": {
            "type": words.type,
            "joint": words.joint,
            "source": words.source.size,
            "target": words.target.size,
            "digest": words.digest,
        },
        "train": {
            "pairs": len(prepared.train),
            "source_tokens": prepared.train.tokens[0],
            "target_tokens": prepared.train.tokens[1],
            "corpora": [
                {"pairs": part.stop - part.start, "weight": part.weight} for part in prepared.train.parts
            ],
        },
        "valid": None if prepared.valid is None else {"pairs": len(prepared.valid)},
        **({"mix": [share._asdict() for share in prepared.mix]} if prepared.mix else {}),
        "report": prepared.report,
    }


def _lines(prepared: Prepared, seconds: float) -> list[str]:
    from deepwire.data.batches.epoch_order import share_lines
    from deepwire.data.selection import report_lines

    lines = [
        line for role, report in prepared.report.items() for line in report_lines(role, report, brief=True)
    ]
    lines += share_lines(prepared.mix, prepared.temperature) if prepared.mix else []
    words, train = prepared.vocabularies, prepared.train
    sizes = f"{words.source.size:,} source, {words.target.size:,} target"
    lines.append(f"vocabulary: {words.type}, {f'{words.source.size:,} joint' if words.joint else sizes}")
    tokens = train.tokens
    per_line = " and ".join(f"{count / len(train):.1f}" for count in tokens)
    lines.append(f"subwords: {tokens[0]:,} source, {tokens[1]:,} target ({per_line} a line)")
    read = _pairs_read(prepared)
    lines.append(
        "nothing changed: used again"
        if prepared.reused
        else f"prepared {read:,} pairs in {seconds:.1f} s ({read / max(seconds, 1e-9):,.0f} pairs/s)"
    )
    lines.append(harmless(f"folder: {prepared.folder}"))
    return lines


def _pairs_read(prepared: Prepared) -> int:
    return sum(report["pairs"] for report in prepared.report.values())
