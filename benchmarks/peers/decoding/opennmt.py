"""OpenNMT-py 3.5.1: onmt_translate.

Its `-precision int8` does nothing: the option is a string, which the code compares with a type of torch.
"""

from __future__ import annotations

import re
from pathlib import Path

from peers.decoding.base import Decoder, Request
from peers.decoding.opennmt_search import search_settings
from peers.opennmt import OpenNMT


class OpenNMTDecoder(Decoder):
    trainer = OpenNMT
    counted = re.compile(r"number of parameters: (\d+)")

    def command(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:
        return [
            *(str(self.training.python), "-m", "onmt.bin.translate"),
            *("-model", str(folder / "run" / "model_step_1.pt"), "-src", str(text), "-output", str(output)),
            *search_settings(request),
        ]
