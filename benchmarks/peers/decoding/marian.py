"""Marian of transformers 5.23: generate(), through inside/marian_translate.py."""

from __future__ import annotations

import re
from pathlib import Path

from peers.decoding.base import Decoder, Format, Request
from peers.marian import Marian

_INSIDE = Path(__file__).parent.parent / "inside"


class MarianDecoder(Decoder):
    trainer = Marian
    formats = (Format("fp32"), Format("bf16", ("--dtype", "bfloat16")))
    counted = re.compile(r"parameters: (\d+)")

    def training_command(self, folder: Path) -> list[str]:
        """inside/marian_train.py keeps no model, and random weights need no training."""
        settings = folder / "settings.json"
        return [str(self.training.python), str(_INSIDE / "marian_new.py"), str(settings), str(folder / "run")]

    def command(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:
        return [
            *(str(self.training.python), str(_INSIDE / "marian_translate.py"), str(folder / "run")),
            *(str(text), str(output), "--beam", str(request.beam), "--batch", str(request.batch)),
            *("--length", str(request.length)),
        ]
