"""A toy model and text for several processes that translate, and a way for them to die amid it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from job_of_processes import Launcher, Patch

from deepwire.decoding.translator import Translator

LINES = 23


def launcher_with_model(folder: Path, *settings: str) -> Launcher:
    """A launcher whose folder holds a trained `model` and a `text` of `LINES` lines, the fourth one empty."""
    launcher = Launcher(folder)
    short = ("training.max_updates=2", "decoding.max_length_ratio=0", "decoding.max_length_extra=4")
    assert launcher.train("model", 1, *short, *settings) == [0], launcher.text()
    lines = (folder / "train.src").read_text().split("\n")[:LINES]
    lines[3] = ""
    (folder / "text").write_text("".join(f"{line}\n" for line in lines))
    return launcher


def die_in_translation(number: int) -> Patch:
    """Makes each process kill itself in the n-th part of the text that it translates."""

    def patch(_rank: int) -> None:
        translations, calls = Translator.translations, [0]

        def wrapped(*given: object, **options: object) -> object:
            calls[0] += 1
            if calls[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return translations(*given, **options)  # type: ignore[arg-type]

        Translator.translations = wrapped  # type: ignore[assignment, method-assign]

    return patch
