"""eole 0.6.4: eole predict.

Its `-compute_dtype int8` ends with an error: settings that were renamed are asked for by their old name.
"""

from __future__ import annotations

import re
from pathlib import Path

from peers.decoding.base import Decoder, Format, Request
from peers.decoding.opennmt_search import search_settings
from peers.eole import Eole


class EoleDecoder(Decoder):
    trainer = Eole
    formats = (Format("fp32"), Format("bf16", ("-compute_dtype", "bf16")))
    counted = re.compile(r"number of parameters: (\d+)")

    def command(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:
        return [
            *(str(self.training.python), "-m", "eole.bin.main", "predict", "-world_size", "0"),
            *("-model_path", str(folder / "run" / "model"), "-src", str(text), "-output", str(output)),
            *search_settings(request),
        ]
