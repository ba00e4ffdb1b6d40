"""Hints that repeat the user's command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deepwire.command_line import again, remember


@pytest.fixture(autouse=True)
def _nothing_typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    yield
    remember([])


def test_every_argument_is_repeated_and_quoted() -> None:
    remember(["train", "my run.yaml", "run=runs/$x", "-q"])
    assert again("--fresh") == "deepwire train 'my run.yaml' 'run=runs/$x' -q --fresh"


def test_from_python_there_is_no_command() -> None:
    remember([])
    assert again("--fresh") == ""


def test_torchrun_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    remember(["train", "a.yaml"])
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert again() == "torchrun ... -m deepwire train a.yaml"
