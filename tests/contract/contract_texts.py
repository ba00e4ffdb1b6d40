"""What the stored model of 0.2.0 says, by the command line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from shutil import copytree

from contract_runs import STORED, succeed

OLD = STORED / "0.2.0"
EXACT = ("--precision", "fp32", "--device", "cpu", "--quiet")
TERMS = "Hund\tcat\nHochhaus\tskyscraper\n"
CERTAIN = 7
"""The lines that the model knows by heart; how it translates the one after them depends on little."""


def copy_of_old(folder: Path) -> Path:
    """A folder as 0.2.0 left it: text, run file, prepared text, run, model."""
    return copytree(OLD, folder / "old")


def texts() -> dict[str, object]:
    """Translations with scores, by beam and greedy, their alignments, and losses of a continued run."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = copy_of_old(Path(temporary))
        return {
            "beam": translated(folder),
            "greedy": translated(folder, "--beam", 1),
            "continued": continued(folder),
        }


def translated(folder: Path, *options: object, model: str = "model") -> list[list[object]]:
    """Translation, score and alignment of the first lines."""
    source = "".join((folder / "text.de").read_text(encoding="utf-8").splitlines(keepends=True)[:CERTAIN])
    out = succeed("translate", model, "--json", "--alignment", *EXACT, *options, cwd=folder, stdin=source)
    records = [json.loads(line) for line in out.splitlines()]
    return [[one["translation"], one["score"], one["alignment"]] for one in records]


def continued(folder: Path) -> list[float]:
    """The losses of ten updates with which the old run goes on."""
    succeed("train", "run.yaml", "run=run", "training.max_updates=410", "--quiet", cwd=folder)
    records = map(json.loads, (folder / "run/metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["update"] > 400]
