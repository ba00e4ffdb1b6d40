"""deepwire itself: deepwire translate."""

from __future__ import annotations

from pathlib import Path

from peers.base import Task
from peers.decoding.base import Decoder, Format, Request
from peers.decoding.commands import printed
from peers.deepwire_cli import Deepwire

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import parameter_count


class DeepwireDecoder(Decoder):
    """Its limits of length are settings of the model: `decoding` in the run file."""

    trainer = Deepwire
    formats = (
        Format("auto"),
        Format("fp32", ("--precision", "fp32")),
        Format("int8", ("--precision", "int8")),
    )
    end_step = 1
    side_by_side = True

    def make(self, folder: Path, task: Task, corpus: Path, request: Request) -> int:
        self.training.prepare(folder, task, corpus)
        limits = (f"min_length={request.length}", "max_length_ratio=0", f"max_length_extra={request.length}")
        settings = (*limits, "length_penalty=0")
        printed([*self.training_command(folder), *(f"decoding.{each}" for each in settings)], folder)
        return parameter_count(find_model(str(folder / "run")))

    def command(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:
        # Subwords of a batch count with the end of each sentence and once for each hypothesis.
        tokens = request.batch * (request.length + 1) * request.beam
        return [
            *(str(self.training.python), "-m", "deepwire", "translate", str(folder / "run"), "--quiet"),
            *("--input", str(text), "--output", str(output), "--threads", str(request.threads)),
            *("--beam", str(request.beam), f"batch_tokens={tokens}"),
        ]
