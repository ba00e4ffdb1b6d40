"""``deepwire translate`` in several processes writes what one process writes, also after an interruption."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from job_of_processes import Launcher
from translating_processes import LINES, die_in_translation, launcher_with_model

WINDOW = 5
FORMS = {
    "plain": (),
    "json": ("--json", "--beam", "2"),
    "n-best": ("--n-best", "2", "--beam", "2"),
    "sampled": ("--sample", "--seed", "3"),
}


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    folder = tmp_path_factory.mktemp("translating")
    return launcher_with_model(folder, f"decoding.window={WINDOW}")


def arguments(launcher: Launcher, output: str, *options: str) -> list[str]:
    folder = launcher.folder
    files = ["--input", str(folder / "text"), "--output", str(folder / output)]
    return ["translate", str(folder / "model"), *files, "--precision", "fp32", *options]


def translate(launcher: Launcher, count: int, output: str, *options: str) -> str:
    codes = launcher.command(count, *arguments(launcher, output, *options)).wait()
    assert codes == [0] * count, launcher.text()
    assert not (launcher.folder / f"{output}.parts").exists()
    return (launcher.folder / output).read_text()


@pytest.mark.parametrize("form", FORMS)
def test_the_output_is_that_of_one_process(launcher: Launcher, form: str) -> None:
    alone = translate(launcher, 1, f"{form}.1", *FORMS[form])
    assert translate(launcher, 2, f"{form}.2", *FORMS[form]) == alone
    assert len(alone.splitlines()) == (2 * LINES - 1 if form == "n-best" else LINES)
    assert launcher.text().count("23 lines in") == 1
    assert "by 2 processes" in launcher.text()


def test_what_all_processes_read_alike_is_warned_of_once(launcher: Launcher) -> None:
    terms = launcher.folder / "terms"
    terms.write_bytes(b"w\xe4rme\theat\n")
    translate(launcher, 2, "terms.2", "--terms", str(terms), "--term-search", "prefer")
    assert launcher.text().count(f"warning: {terms}: bytes of 1 line are not UTF-8") == 1


@pytest.mark.parametrize("count", [3, 1])
def test_an_interrupted_job_goes_on_with_another_number_of_processes(launcher: Launcher, count: int) -> None:
    output = f"broken.{count}"
    job = launcher.command(2, *arguments(launcher, output), patch=die_in_translation(2))
    assert job.wait() == [-signal.SIGKILL] * 2
    assert not (launcher.folder / output).exists()
    parts = launcher.folder / f"{output}.parts"
    assert sorted(path.name for path in parts.glob("0*")) == ["000000-5", "000001-5"]
    (parts / "000000-5").write_text("kept\n" * 5)
    lines = translate(launcher, count, output).splitlines()
    assert "2 parts of 5 lines are there already" in launcher.text()
    assert lines[:5] == ["kept"] * 5
    assert lines[5:] == translate(launcher, 1, "whole").splitlines()[5:]


def test_parts_of_another_job_are_not_mixed_in(launcher: Launcher) -> None:
    job = launcher.command(2, *arguments(launcher, "mixed"), patch=die_in_translation(2))
    assert job.wait() == [-signal.SIGKILL] * 2
    assert 2 in launcher.command(2, *arguments(launcher, "mixed", "--beam", "3")).wait()
    assert launcher.text().count("error: ") == 1
    assert "parts of another job, which differs in decoding settings" in launcher.text()
    for other in (["--beam", "3"], ["--input", "-"], ["--stream"]):
        assert launcher.command(1, *arguments(launcher, "mixed", *other)).wait() == [2]
        assert f"error: {launcher.folder / 'mixed.parts'}: parts of another job" in launcher.text()
    assert (launcher.folder / "mixed.parts" / "000000-5").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", "-"], "need a file to read from"),
        (["--output", "-"], "need a file to write to"),
        (["--stream"], "--stream is for one process"),
        (["--device", "cuda:0"], "cuda:0"),
    ],
)
def test_what_needs_one_process_is_refused(launcher: Launcher, options: list[str], message: str) -> None:
    codes = launcher.command(2, *arguments(launcher, "refused", *options)).wait()
    assert not {0, 1} & set(codes)
    assert launcher.text().count("error: ") == 1
    assert message in launcher.text()
