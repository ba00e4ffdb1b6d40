"""A model that was trained on a toy corpus from Python, once for all tests here."""

from __future__ import annotations

from pathlib import Path

import pytest
from reversed_words import SETTINGS, write_corpus

import deepwire


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_corpus(folder)
    return folder


@pytest.fixture(scope="session")
def data(corpus: Path) -> dict[str, object]:
    """Where the text is, to be given as ``data=``."""
    return {name: str(corpus / name) for name in ("train", "valid", "test", "prepared")}


@pytest.fixture(scope="session")
def trained(corpus: Path, data: dict[str, object]) -> deepwire.Run:
    return deepwire.train(SETTINGS, data=data, run=str(corpus / "run"), quiet=True)
