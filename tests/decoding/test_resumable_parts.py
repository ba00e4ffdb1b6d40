from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepwire.decoding.resumable_parts import PartsFolder
from deepwire.errors import UsageError


def test_a_second_job_is_refused_with_the_holder_of_the_folder(tmp_path: Path) -> None:
    folder = PartsFolder.of(tmp_path / "out")
    with (
        folder.held({"beam": 4}),
        pytest.raises(UsageError, match=f"out.parts: another job works there: pid {os.getpid()} on host"),
        folder.held({"beam": 4}),
    ):
        pass
    with folder.held({"beam": 4}):
        pass


def test_parts_without_their_job_are_refused(tmp_path: Path) -> None:
    """They could be those of any job."""
    folder = PartsFolder.of(tmp_path / "out")
    with folder.held({"beam": 4}):
        folder.file(0, 5).write_text("a\n" * 5)
    (folder.path / "job.json").unlink()
    with pytest.raises(UsageError, match=r"out.parts: has files, but no job\.json"), folder.held({"beam": 4}):
        pass


def test_a_part_is_taken_once_in_each_call(tmp_path: Path) -> None:
    folder = PartsFolder.of(tmp_path / "out")
    with folder.held({"beam": 4}):
        assert [folder.take(0, "a"), folder.take(0, "a"), folder.take(0, "b")] == [True, False, True]
        assert not folder.done()
