"""What is meant for export alone runs there alone."""

from __future__ import annotations

import pytest
import torch

from deepwire.ops.over_positions import is_exporting


@pytest.mark.parametrize(
    ("exporting", "compiling", "expected"),
    [(False, False, False), (True, False, True), (True, True, False)],
)
def test_torch_2_11_calls_a_compiled_model_exported(
    monkeypatch: pytest.MonkeyPatch, exporting: bool, compiling: bool, expected: bool
) -> None:
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: exporting)
    monkeypatch.setattr(torch.compiler, "is_dynamo_compiling", lambda: compiling)
    assert is_exporting() == expected
