"""The result of decoding_toolkits.py as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import machine
from peers.base import Task
from peers.decoding.base import Request


@dataclass(frozen=True)
class Round:
    """So many sentences after the start, and what they took."""

    toolkit: str
    sentences: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.sentences / self.seconds


@dataclass(frozen=True)
class Entry:
    """What a row of the table says beside its rounds; steps are those of the search for a translation."""

    toolkit: str
    version: str
    parameters: int
    steps: int


def as_table(
    task: Task,
    request: Request,
    entries: Sequence[Entry],
    rounds: Sequence[Round],
    figures: dict[str, object],
    note: str | None,
) -> str:
    first = [each.rate for each in rounds if each.toolkit == entries[0].toolkit]
    lines = [
        f"# Decoding speed of toolkits: beam {request.beam}, {request.batch} at a time, CPU "
        f"{machine.kind(figures)}, {figures['date']}",
        "",
        f"Transformer {task.layers}+{task.layers}, d {task.d_model}, FFN {task.d_ffn}, {task.heads} heads, "
        f"{task.vocabulary:,} subwords, tied embeddings, random weights; sentences and translations of "
        f"{request.length} subwords; {len(first)} rounds in turn, start-up left out.",
        "",
        f"Machine: {machine.in_words(figures)}",
        "",
        "| toolkit | version | parameters | steps | sentences/s | lowest | highest | sentences/CPU-s "
        "| speed of the first row over it | by round |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in entries:
        own = [each for each in rounds if each.toolkit == entry.toolkit]
        rates = [each.rate for each in own]
        busy = statistics.median(each.sentences / each.cpu_seconds for each in own)
        ratios = [f"{ours / theirs:.2f}" for ours, theirs in zip(first, rates, strict=True)]
        lines.append(
            f"| {entry.toolkit} | {entry.version} | {entry.parameters:,} | {entry.steps} "
            f"| {statistics.median(rates):.2f} | {min(rates):.2f} | {max(rates):.2f} | {busy:.2f} "
            f"| {statistics.median(first) / statistics.median(rates):.2f} | {', '.join(ratios)} |"
        )
    return "\n".join(lines + (["", note] if note else [])) + "\n"
