"""deepwire itself, through its command line."""

from __future__ import annotations

import json
from pathlib import Path

from peers.base import Format, Reading, Request, Task, Toolkit, printed

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import parameter_count


class Deepwire(Toolkit):
    """As it is by default, with as many processes as it chooses."""

    name = "deepwire"
    formats = (
        Format("auto"),
        Format("fp32", ("--precision", "fp32")),
        Format("int8", ("--precision", "int8")),
    )
    end_step = 1
    side_by_side = True
    settings: tuple[str, ...] = ()
    version_code = "import deepwire, torch; print(deepwire.__version__, 'torch', torch.__version__)"

    def prepare(self, folder: Path, task: Task, corpus: Path) -> None:
        run_file = {
            "seed": 1,
            "data": {
                "source": task.source,
                "target": task.target,
                "train": str(corpus),
                "vocabulary": {"type": "words", "max_size": task.vocabulary, "joint": True},
                "prepared": str(folder / "prepared"),
            },
            "model": {
                "d_model": task.d_model,
                "heads": task.heads,
                "feed_forward": task.d_ffn,
                "dropout": task.dropout,
                "bias": {"attention": True, "feed_forward": "both"},
                "encoder": {"layers": task.layers},
                "decoder": {"layers": task.layers},
            },
            "training": {
                "batch_tokens": task.batch_tokens,
                "label_smoothing": task.label_smoothing,
                "schedule": {"type": "noam", "scale": 2.0, "warmup": 4000},
                "optimizer": {"type": "adam", "betas": [0.9, 0.998]},
                "clip_norm": 1.0,
            },
        }
        # JSON is YAML.
        (folder / "run.yaml").write_text(json.dumps(run_file, indent=1))

    def command(self, folder: Path, updates: int, log_every: int, run: Path) -> list[str]:
        return [
            *(str(self.python), "-m", "deepwire", "train", str(folder / "run.yaml"), f"run={run}"),
            *(f"training.max_updates={updates}", f"training.log_every={log_every}", *self.settings),
        ]

    def readings(self, output: str, run: Path) -> list[Reading]:  # noqa: ARG002
        log = run / "metrics.jsonl"
        # The last line may be half written while the run goes on.
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        return [
            Reading(record["update"], record["seconds"], record["target_tokens"])
            for record in records
            if record["kind"] == "train"
        ]

    def make(self, folder: Path, task: Task, corpus: Path, request: Request) -> int:
        """The limits of length are settings of the model."""
        self.prepare(folder, task, corpus)
        limits = (f"min_length={request.length}", "max_length_ratio=0", f"max_length_extra={request.length}")
        settings = (*limits, "length_penalty=0")
        printed([*self.making_command(folder), *(f"decoding.{each}" for each in settings)], folder)
        return parameter_count(find_model(str(folder / "run")))

    def translate(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:
        # Subwords of a batch count with the end of each sentence and once for each hypothesis.
        tokens = request.batch * (request.length + 1) * request.beam
        return [
            *(str(self.python), "-m", "deepwire", "translate", str(folder / "run"), "--quiet"),
            *("--input", str(text), "--output", str(output), "--threads", str(request.threads)),
            *("--beam", str(request.beam), f"batch_tokens={tokens}"),
        ]


class DeepwireTwoProcesses(Deepwire):
    """In two processes, which share the cores."""

    name = "deepwire, two processes"
    settings = ("training.processes=2",)


class DeepwireOneProcess(Deepwire):
    """In one process, whose threads share the cores."""

    name = "deepwire, one process"
    settings = ("training.processes=1",)
