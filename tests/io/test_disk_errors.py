from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from deepwire.errors import ResourceError
from deepwire.io.disk_errors import disk_errors, human_bytes, is_disk_full


def test_a_full_disk_becomes_one_line(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="No space left on device") as caught, disk_errors(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "free some space" in caught.value.hint
    assert str(tmp_path) in caught.value.message


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (3_100_000_000, "3.1 GB"), (2e15, "2000.0 TB")]
)
def test_bytes_as_people_read_them(count: float, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("number", "full"),
    [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EFBIG, True), (errno.EACCES, False)],
)
def test_what_counts_as_a_full_disk(number: int, full: bool) -> None:
    assert is_disk_full(OSError(number, os.strerror(number))) is full
