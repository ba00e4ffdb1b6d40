"""The contract: what stays, whatever the house is built of.

These tests call only the command line and the public Python API, so that they pass unchanged before and after
any move of the code.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Commands are forked, which threads of a pool do not survive."""
    torch.set_num_threads(1)
