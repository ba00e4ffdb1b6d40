"""Commands, text and the ten systems of the contract; all through the command line or Python."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile

import torch

import deepwire

HERE = Path(__file__).parent
STORED = HERE / "stored"
MULTI30K = HERE.parents[1] / "examples" / "multi30k"

SAME = 1e-3
"""How far a number may be from the stored one, relative to it: other processors and versions of torch."""

TRAINING = """
seed: 3
data:
  {source: de, target: en, train: train, valid: valid, prepared: prepared,
   vocabulary: {type: bpe, size: 200, byte_fallback: false}}
training:
  max_updates: 30
  batch_tokens: 300
  log_every: 5
  schedule: {peak: 0.01, warmup: 10}
  validation: {every: 15}
  checkpoint: {every: 15}
  precision: fp32
  device: cpu
"""
SIZES: Mapping[str, object] = {"d_model": 32, "heads": 4, "feed_forward": 48, "dropout": 0}


def both(**settings: object) -> dict[str, object]:
    """The same settings of encoder and decoder, of two layers each."""
    return {side: {"layers": 2, **settings} for side in ("encoder", "decoder")}


SYSTEMS: Mapping[str, Mapping[str, object]] = {
    "pre_norm": both(connection="pre_norm"),
    "post_norm": both(connection="post_norm"),
    "depth_lstm": both(connection="depth_lstm"),
    "depth_lstm_decoder": {
        "encoder": {"layers": 2, "connection": "post_norm"},
        "decoder": {"layers": 2, "connection": {"type": "depth_lstm", "merge": "two", "share": "all"}},
    },
    "dlcl": both(connection="pre_norm", aggregation="dlcl"),
    "gtrans": both(connection="post_norm", layers=4, fusion={"type": "groups", "size": 2}),
    "transparent_attention": {
        "encoder": {"layers": 3, "connection": "post_norm", "fusion": "transparent"},
        "decoder": {"layers": 2, "connection": "post_norm"},
    },
    "mhplstm": {
        "encoder": {"layers": 2, "connection": "pre_norm"},
        "decoder": {"layers": 2, "connection": "pre_norm", "mixer": "mhplstm"},
    },
    "hyper_connections": both(connection="hyper"),
    "dwa_and_mudd": {
        "encoder": {"layers": 3, "connection": "pre_norm", "aggregation": "dwa"},
        "decoder": {"layers": 3, "connection": "pre_norm", "aggregation": "mudd"},
    },
}


def run_file(system: str, **model: object) -> str:
    """The run file of a system; YAML, of which JSON is a part."""
    return f"{TRAINING}model: {json.dumps({**SIZES, **SYSTEMS[system], **model})}\n"


def write_text(folder: Path, names: Mapping[str, range] | None = None) -> None:
    """Short sentences of Multi30k as train and valid, German and English."""
    parts = names or {"train": range(200), "valid": range(200, 212)}
    sides = {
        side: gzip.decompress((MULTI30K / f"train.{side}.gz").read_bytes()).decode().split("\n")
        for side in ("de", "en")
    }
    short = [place for place, line in enumerate(sides["de"]) if 20 < len(line) < 60]
    for name, numbers in parts.items():
        for side, lines in sides.items():
            text = "".join(f"{lines[short[number]]}\n" for number in numbers)
            (folder / f"{name}.{side}").write_text(text, encoding="utf-8")


(ENTRY_POINT,) = entry_points(group="console_scripts", name="deepwire")
script: Callable[[], None] = ENTRY_POINT.load()


def fork(work: Callable[[], int]) -> int:
    """Do this in a forked process, which ends with the exit code that it gives; gives the process id."""
    child = os.fork()
    if child:
        return child
    code: object = 99
    try:
        torch.set_num_threads(1)
        code = work()
    except SystemExit as end:
        code = end.code
    finally:
        os._exit(code if isinstance(code, int) else 98)


def start_command(*arguments: object, cwd: Path, stdin: int, stdout: int, stderr: int) -> int:
    """Start the console script, forked, on these open files; gives the process id."""

    def work() -> int:
        os.chdir(cwd)
        for number, file in enumerate((stdin, stdout, stderr)):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, closefd=False)  # noqa: SIM115 - they have no path, and stay open
            for number, mode in enumerate("rww")
        )
        sys.argv = ["deepwire", *map(str, arguments)]
        try:
            script()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        raise AssertionError("a console script exits")

    return fork(work)


def command(*arguments: object, cwd: Path, stdin: str | bytes = "") -> CompletedProcess[str]:
    """Run ``deepwire`` with these arguments to its end."""
    with TemporaryFile() as text, TemporaryFile() as output, TemporaryFile() as errors:
        text.write(stdin if isinstance(stdin, bytes) else stdin.encode())
        text.seek(0)
        files = {"stdin": text.fileno(), "stdout": output.fileno(), "stderr": errors.fileno()}
        status = os.waitpid(start_command(*arguments, cwd=cwd, **files), 0)[1]
        output.seek(0)
        errors.seek(0)
        said = output.read().decode(), errors.read().decode()
    return CompletedProcess(list(map(str, arguments)), os.waitstatus_to_exitcode(status), *said)


def succeed(*arguments: object, cwd: Path, stdin: str | bytes = "") -> str:
    """The standard output of a command that ends well."""
    done = command(*arguments, cwd=cwd, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stored(name: str) -> dict[str, object]:
    """What a file of the stored numbers says."""
    value: dict[str, object] = json.loads((STORED / f"{name}.json").read_text(encoding="utf-8"))
    return value


def digests(run: Path, update: int) -> dict[str, object]:
    """The digests of the weights and moments of a checkpoint."""
    manifest = json.loads((run / f"checkpoints/update-{update:06d}/manifest.json").read_text())
    return {name: manifest["files"][name] for name in ("model.safetensors", "optimizer.safetensors")}


def train_system(system: str, folder: Path) -> dict[str, object]:
    """Train it from Python and give its numbers: losses, norms of gradients, number of parameters."""
    path = folder / f"{system}.yaml"
    path.write_text(run_file(system), encoding="utf-8")
    run = deepwire.train(path, run=folder / system, quiet=True)
    updates = [record for record in run.history if record["kind"] == "train"]
    return {
        "update": [record["update"] for record in updates],
        "learned": updates[0]["nll"] - updates[-1]["nll"],
        "loss": [record["loss"] for record in updates],
        "gradient_norm": [record["gradient_norm"] for record in updates],
        "validation_loss": [record["loss"] for record in run.history if record["kind"] == "valid"],
    }
