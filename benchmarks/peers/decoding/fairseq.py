"""fairseq 0.12.2: fairseq-interactive, which translates a file as fairseq-generate does."""

from __future__ import annotations

import re
from pathlib import Path

from peers.base import Task
from peers.decoding.base import Decoder, Request
from peers.fairseq import LAUNCHER, Fairseq

# H-0	-1.234	a translation
_HYPOTHESIS = re.compile(r"^H-\d+\t\S+\t(.*)$", re.MULTILINE)
# Lines that are read before the first batch is made: all.
_BUFFER = 1_000_000


class FairseqDecoder(Decoder):
    trainer = Fairseq
    end_step = 1
    counted = re.compile(r"num\. trained: ([\d,]+)")

    def make(self, folder: Path, task: Task, corpus: Path, request: Request) -> int:
        """Parameters are counted without the second copy of the encoder's, for torch's fused layer."""
        attention = 4 * (task.d_model + 1) * task.d_model
        feed_forward = 2 * task.d_model * task.d_ffn + task.d_model + task.d_ffn
        return super().make(folder, task, corpus, request) - task.layers * (attention + feed_forward)

    def training_command(self, folder: Path) -> list[str]:
        return [each for each in super().training_command(folder) if each != "--no-save"]

    def command(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:  # noqa: ARG002
        return [
            *(str(self.training.python), str(LAUNCHER), "interactive", str(folder / "binarized")),
            *("--path", str(folder / "run" / "checkpoint_last.pt"), "--input", str(text), "--cpu"),
            *("--beam", str(request.beam), "--batch-size", str(request.batch), "--buffer-size", str(_BUFFER)),
            # Limits without the end, which is a step of its own.
            *("--min-len", str(request.length), "--max-len-a", "0", "--max-len-b", str(request.length)),
            "--unnormalized",
        ]

    def translations(self, output: Path, log: str) -> list[str]:  # noqa: ARG002
        return _HYPOTHESIS.findall(log)
