"""For all tests: real text, a real browser where there is one, no waiting for disks, no chance."""

from __future__ import annotations

import gc
import gzip
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from deepwire.ops.process import allow_float32_choice, seed_random_numbers

# No example may fail because the machine is busy, and each run tries the same ones; others are tried with
# pytest --hypothesis-profile=default.
hypothesis.settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("suite")


MEMORY = Path("/dev/shm")
"""A file system in memory, where Linux has one."""
ROOM = 4 << 30
"""What it must have free in bytes; a run of all tests leaves a tenth of it behind."""


def pytest_configure() -> None:
    """Wait for no disk: what `os.fsync` is for, a loss of power, no test can see.

    Where and how often it is called stays as it is, and processes that are not forked from this one wait.
    Temporary folders are made in memory, where there is room and nobody has named a place.
    """
    os.fsync = _fsync_without_waiting
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def _fsync_without_waiting(fd: Any) -> None:
    os.fstat(fd)  # what is no open file is an error as before


LONG = (
    "test_export_torch.py",
    "test_several_processes.py",
    "test_prepared.py",
    "test_export_onnx.py",
    "test_analyze_command.py",
    "test_parity.py",
    "test_training_faults.py",
    "test_product.py",
    "test_snippets.py",
    "test_features_in_processes.py",
)
"""Files that take more than ten seconds, most of them with few tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let long files come first: a worker that begins one at the end keeps the other waiting."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are imported: there is none, and looking took a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Keep all that is imported by now: no collection has to look at it again, nor in forked processes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # what tests import later is not looked at every moment either


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Numbers that a test draws, also in fixtures that it shares, do not depend on the tests before it.

    `torch.manual_seed` would format the stack each time, for a GPU that may come to be used later.
    """
    if (torch := sys.modules.get("torch")) is not None:
        seed_random_numbers(1, torch.device("cuda" if torch.cuda.is_initialized() else "cpu"))


@pytest.fixture(autouse=True)
def _exact_arithmetic() -> None:
    """Training and loading set the process up for speed; each test begins with what torch begins with."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_float32_matmul_precision("highest")
        torch.set_flush_denormal(False)
    allow_float32_choice(False)


@pytest.fixture(scope="session")
def multi30k() -> Mapping[str, Sequence[str]]:
    """The lines of the training text among the examples, by language."""
    folder = Path(__file__).parents[1] / "examples" / "multi30k"
    files = {language: folder / f"train.{language}.gz" for language in ("de", "en")}
    return {
        language: gzip.decompress(file.read_bytes()).decode("utf-8").split("\n")
        for language, file in files.items()
    }


@pytest.fixture(scope="session")
def browser_command() -> Sequence[str] | None:
    """A real browser without a window; None where there is none."""
    program = os.environ.get("CHROME") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return None
    return [
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
    ]


@pytest.fixture
def open_in_browser(browser_command: Sequence[str] | None, tmp_path: Path) -> Callable[[Path], str]:
    """The page as a real browser has it after loading, and nothing said about errors while it loaded."""

    def load(page: Path) -> str:
        if browser_command is None:  # here, so that what was checked before this call counts
            pytest.skip("no chromium on the PATH and CHROME is not set")
        own = ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom"]
        done = subprocess.run(
            [*browser_command, *own, page.as_uri()], capture_output=True, text=True, timeout=300, check=True
        )
        said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        assert not said, said
        return done.stdout

    return load


@pytest.fixture(autouse=True, scope="session")
def _signals_as_in_a_terminal() -> None:
    """Who runs the tests in the background, or by nohup, hands down signals that are ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
