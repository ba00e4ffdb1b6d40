"""fairseq 0.12.2, as its users run it: fairseq-preprocess, fairseq-train, fairseq-interactive."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import datetime
from pathlib import Path

from peers.base import Reading, Request, Task, Toolkit

LAUNCHER = Path(__file__).parent / "inside" / "fairseq_launcher.py"
# The launcher's log: 2026-01-31 12:00:00,123 | train_inner | {"epoch": 1, ..., "wpb": "3801.2", ...
_LINE = re.compile(r"^([\d-]+ [\d:]+,\d+) \| train_inner \| (\{.*\})$", re.MULTILINE)
# H-0	-1.234	a translation
_HYPOTHESIS = re.compile(r"^H-\d+\t\S+\t(.*)$", re.MULTILINE)
# Lines that are read before the first batch is made: all.
_BUFFER = 1_000_000


class Fairseq(Toolkit):
    name = "fairseq"
    end_step = 1
    counted = re.compile(r"num\. trained: ([\d,]+)")
    version_code = (
        "import importlib.metadata as m, torch; print(m.version('fairseq'), 'torch', torch.__version__)"
    )

    def prepare(self, folder: Path, task: Task, corpus: Path) -> None:
        binarize = [
            *(str(self.python), str(LAUNCHER), "preprocess", "--joined-dictionary", "--workers", "1"),
            *("--source-lang", task.source, "--target-lang", task.target),
            *("--trainpref", str(corpus), "--validpref", str(folder / "valid")),
            *("--destdir", str(folder / "binarized")),
        ]
        # It asks for a validation set, which is loaded and not used.
        for language in (task.source, task.target):
            lines = Path(f"{corpus}.{language}").read_text().splitlines()[:8]
            (folder / f"valid.{language}").write_text("".join(f"{line}\n" for line in lines))
        subprocess.run(binarize, check=True, capture_output=True)
        sides = [
            argument
            for side in ("encoder", "decoder")
            for argument in (
                *(f"--{side}-layers", str(task.layers), f"--{side}-embed-dim", str(task.d_model)),
                *(f"--{side}-ffn-embed-dim", str(task.d_ffn), f"--{side}-normalize-before"),
                *(f"--{side}-attention-heads", str(task.heads)),
            )
        ]
        dropouts = [f"--{place}" for place in ("dropout", "attention-dropout", "activation-dropout")]
        settings = [
            *(str(folder / "binarized"), "--source-lang", task.source, "--target-lang", task.target),
            *("--arch", "transformer", "--share-all-embeddings", *sides),
            *(argument for place in dropouts for argument in (place, str(task.dropout))),
            *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", str(task.label_smoothing)),
            *("--optimizer", "adam", "--adam-betas", "(0.9, 0.998)", "--clip-norm", "1.0"),
            *("--lr", "0.001", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4000"),
            *("--max-tokens", str(task.batch_tokens), "--num-workers", "1"),
            *("--cpu", "--no-save", "--disable-validation", "--log-format", "json"),
        ]
        (folder / "settings.json").write_text(json.dumps(settings))

    def command(self, folder: Path, updates: int, log_every: int, run: Path) -> list[str]:
        settings = json.loads((folder / "settings.json").read_text())
        return [
            *(str(self.python), str(LAUNCHER), "train", *settings),
            *("--max-update", str(updates), "--log-interval", str(log_every), "--save-dir", str(run)),
        ]

    def readings(self, output: str, run: Path) -> list[Reading]:  # noqa: ARG002
        found: list[Reading] = []
        tokens, before = 0.0, 0
        for when, line in _LINE.findall(output):
            record = json.loads(line)
            update = int(record["num_updates"])
            # Words of a batch on average since the last line.
            tokens += float(record["wpb"]) * (update - before)
            before = update
            stamp = datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f").timestamp()
            found.append(Reading(update, stamp, tokens))
        return found

    def make(self, folder: Path, task: Task, corpus: Path, request: Request) -> int:
        """Parameters are counted without the second copy of the encoder's, for torch's fused layer."""
        attention = 4 * (task.d_model + 1) * task.d_model
        feed_forward = 2 * task.d_model * task.d_ffn + task.d_model + task.d_ffn
        return super().make(folder, task, corpus, request) - task.layers * (attention + feed_forward)

    def making_command(self, folder: Path) -> list[str]:
        return [each for each in super().making_command(folder) if each != "--no-save"]

    def translate(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:  # noqa: ARG002
        return [
            *(str(self.python), str(LAUNCHER), "interactive", str(folder / "binarized")),
            *("--path", str(folder / "run" / "checkpoint_last.pt"), "--input", str(text), "--cpu"),
            *("--beam", str(request.beam), "--batch-size", str(request.batch), "--buffer-size", str(_BUFFER)),
            # Limits without the end, which is a step of its own.
            *("--min-len", str(request.length), "--max-len-a", "0", "--max-len-b", str(request.length)),
            "--unnormalized",
        ]

    def translations(self, output: Path, log: str) -> list[str]:  # noqa: ARG002
        return _HYPOTHESIS.findall(log)
