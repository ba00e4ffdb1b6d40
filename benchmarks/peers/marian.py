"""Marian of transformers 5.23, through scripts in inside/: there is no command of its own."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

from peers.base import Format, Reading, Request, Task, Toolkit

_INSIDE = Path(__file__).parent / "inside"


class Marian(Toolkit):
    name = "HF Marian"
    version_code = "import torch, transformers as t; print(t.__version__, 'torch', torch.__version__)"
    precision = "fp32"
    formats = (Format("fp32"), Format("bf16", ("--dtype", "bfloat16")))
    counted = re.compile(r"parameters: (\d+)")

    def prepare(self, folder: Path, task: Task, corpus: Path) -> None:
        files = {"source": f"{corpus}.{task.source}", "target": f"{corpus}.{task.target}"}
        settings = asdict(task) | files | {"precision": self.precision}
        (folder / "settings.json").write_text(json.dumps(settings, indent=1))

    def command(self, folder: Path, updates: int, log_every: int, run: Path) -> list[str]:
        settings = json.loads((folder / "settings.json").read_text())
        path = run / "settings.json"
        path.write_text(json.dumps(settings | {"updates": updates, "log_every": log_every}, indent=1))
        return [str(self.python), str(_INSIDE / "marian_train.py"), str(path)]

    def readings(self, output: str, run: Path) -> list[Reading]:  # noqa: ARG002
        # The last line may be half written while the run goes on.
        lines = [line for line in output.splitlines() if line.startswith('{"update"') and line.endswith("}")]
        records = [json.loads(line) for line in lines]
        return [Reading(each["update"], each["time"], each["target_tokens"]) for each in records]

    def making_command(self, folder: Path) -> list[str]:
        """Random weights need no training."""
        script, settings = _INSIDE / "marian_train.py", folder / "settings.json"
        return [str(self.python), str(script), str(settings), str(folder / "run")]

    def translate(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:
        return [
            *(str(self.python), str(_INSIDE / "marian_translate.py"), str(folder / "run")),
            *(str(text), str(output), "--beam", str(request.beam), "--batch", str(request.batch)),
            *("--length", str(request.length)),
        ]


class MarianBfloat16(Marian):
    name = "HF Marian bf16"
    precision = "bf16"
