"""How idle threads wait: decided by the command before torch is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from deepwire.cli.openmp_threads import limit_openmp_spinning


@pytest.mark.parametrize(
    ("set_by_user", "expected"),
    [
        ({}, {"GOMP_SPINCOUNT": "20000"}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_idle_threads_sleep_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, set_by_user: dict[str, str], expected: dict[str, str]
) -> None:
    monkeypatch.setattr(os, "environ", dict(set_by_user))
    limit_openmp_spinning()
    assert dict(os.environ) == expected


def test_the_processor_is_shared_before_torch_is_imported() -> None:
    code = "import sys, deepwire.cli.openmp_threads; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
