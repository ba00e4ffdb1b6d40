"""Functions in C for what torch has no single operation for, compiled by the C compiler of the machine.

It makes a library of a file once, in the cache of the user. `CC=false` says that there is no compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

# No flag that takes NaN for impossible: it tells of damaged weights.
_FLAGS = ("-O3", "-march=native", "-fPIC", "-fno-math-errno", "-fno-trapping-math")


@cache
def compiled_library(source: Path, *flags: str) -> ctypes.CDLL | None:
    """The library of a C file, compiled with more flags; None where no compiler makes one."""
    compiler, info = os.environ.get("CC", "cc"), Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    cpu = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
    told = "\n".join([compiler, *_FLAGS, *flags, platform.machine(), cpu]).encode() + source.read_bytes()
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "deepwire"
        path = folder / f"{source.stem}-{hashlib.sha256(told).hexdigest()[:32]}.so"
        if not _is_whole(path):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with TemporaryDirectory(dir=folder) as room:
                compiled, made = f"{room}/compiled.o", f"{room}/made.so"
                # Linked on its own: OpenMP is that of torch, which is there, and not a second one.
                link = "-shared", compiled, "-lm", "-o", made
                for rest in ((*_FLAGS, *flags, "-c", str(source), "-o", compiled), link):
                    subprocess.run([*shlex.split(compiler), *rest], check=True, capture_output=True)
                library = Path(made).read_bytes()
                Path(made).write_bytes(library + hashlib.sha256(library).digest())
                Path(made).replace(path)
        return ctypes.CDLL(str(path))
    except (OSError, RuntimeError, ValueError, subprocess.CalledProcessError):
        return None  # RuntimeError: no home; ValueError: an open quotation mark


def _is_whole(path: Path) -> bool:
    """Whether a library is there, and with all of its bytes: their hash stands behind them."""
    found = path.read_bytes() if path.exists() else b""
    return found[-32:] == hashlib.sha256(found[:-32]).digest()
