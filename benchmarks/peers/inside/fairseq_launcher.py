"""Run a command of fairseq 0.12.2 on Python 3.11: python fairseq_launcher.py train|preprocess ARGUMENTS.

Its dataclasses have dataclasses as defaults, which Python allows since 3.11 only if they can be hashed; here
they can. Nothing that is timed changes. Times in the log have milliseconds.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import logging
import sys
from collections.abc import Callable

plain = dataclasses.dataclass


def dataclass(cls: type | None = None, /, **options: bool) -> type | Callable[[type], type]:
    """`dataclasses.dataclass`, with a hash for the classes of fairseq and of its configuration library."""
    if cls is None:
        return functools.partial(dataclass, **options)
    if cls.__module__.partition(".")[0] in ("fairseq", "hydra"):
        options.setdefault("unsafe_hash", True)
    return plain(cls, **options)


def main() -> None:
    name = sys.argv.pop(1)
    # Seen before fairseq sets its own form, which has whole seconds.
    logging.basicConfig(format="%(asctime)s | %(name)s | %(message)s", level=logging.INFO, stream=sys.stdout)
    dataclasses.dataclass = dataclass
    importlib.import_module(f"fairseq_cli.{name}").cli_main()


if __name__ == "__main__":
    main()
