"""JoeyNMT 2.3.0: its translate command.

It writes translations to its output: with `-o FILE` it ends with an error.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from peers.decoding.base import Decoder, Request
from peers.joeynmt import JoeyNMT


class JoeyNMTDecoder(Decoder):
    """Every step of its search computes all subwords so far again: it keeps no states."""

    trainer = JoeyNMT
    counted = re.compile(r"Total params: (\d+)")

    def command(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:  # noqa: ARG002
        settings = json.loads((folder / "run" / "joey.yaml").read_text())
        settings["testing"] = {
            "load_model": str(folder / "run" / "model" / "latest.ckpt"),
            "beam_size": request.beam,
            "batch_size": request.batch,
            "batch_type": "sentence",
            # The end does not count, and no step is spent on it at this limit.
            "max_output_length": request.length,
        }
        # The search forgets the lower limit, min_output_length. Tags of languages it never writes.
        settings["data"]["special_symbols"] = {"lang_tags": ["</s>"]}
        path = folder / "translate.yaml"
        path.write_text(json.dumps(settings, indent=1))
        return [str(self.training.python), "-m", "joeynmt", "translate", str(path)]

    def translations(self, output: Path, log: str) -> list[str]:  # noqa: ARG002
        return log.splitlines()
