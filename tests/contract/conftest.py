"""The contract: what stays, whatever the house is built of.

These tests call only the command line and the public Python API, so that they pass unchanged before and after
any move of the code. All of them: ``python -m pytest tests/contract``.

The stored numbers are not mended to fit the code. They are written anew (`store_contract.py`, with its
flag) only where it was decided that the contract changes, and the changelog says why: with **breaking** where
a model, run or prepared text of an earlier version no longer loads. Names of new recipes and settings of new
choices are put into ``parameters.json`` first. Numbers are compared to 1e-3 of themselves, which holds on
other processors and versions of torch; AVX2, AVX-512 and scalar code were 2e-5 apart.
``stored/0.2.0`` is what
that version wrote, and stays.
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
