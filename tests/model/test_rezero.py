"""ReZero."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import torch
from one_socket import config_of, connection_of, through
from torch import nn

import deepwire
from deepwire.model.build import build_model


@pytest.mark.parametrize("share", ["layer", "none"])
def test_two_layers_written_out(share: str) -> None:
    """x + a F(x) + b G(x + a F(x)) and so on, with a = b where a layer shares its number."""
    connection = connection_of({"type": "rezero", "share": share})
    alpha = torch.tensor([0.3, 0.3, -0.5, -0.5] if share == "layer" else [0.3, 0.7, -0.5, 0.2])
    with torch.no_grad():
        connection.alpha.copy_(alpha[::2] if share == "layer" else alpha)
    sublayers = [nn.Linear(16, 16) for _ in range(4)]
    x = torch.randn(2, 3, 16)
    expected = x
    for number, sublayer in zip(alpha, sublayers, strict=True):
        expected = expected + number * sublayer(expected)
    assert torch.allclose(through(connection, sublayers, x), expected, atol=1e-6)


def test_begins_as_the_identity() -> None:
    """Before training a stack gives its input, and only embedding, output and the decoder's numbers learn."""
    torch.manual_seed(0)
    model = build_model(config_of(connection="rezero"), 23, 23)
    source, target = torch.tensor([[4, 9, 5, 2]]), torch.tensor([[1, 5, 9, 12]])
    embedded = model.source_embedding(source)
    assert torch.equal(model.encode(source)[0][0], embedded)
    model.loss(source, target, torch.tensor([[5, 9, 12, 2]])).smoothed.backward()
    moved = {
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and parameter.grad.abs().max() > 0
    }
    # One matrix is source embedding, target embedding and output projection.
    assert moved == {"source_embedding.table.weight", "head.bias", "decoder.connection.alpha"}


@pytest.mark.parametrize(("share", "numbers"), [("layer", 2), ("none", 6)])
def test_parameters(share: str, numbers: int) -> None:
    """One number for each layer or sub-layer, and no norm anywhere."""
    model = build_model(config_of(connection={"type": "rezero", "share": share}), 23, 23)
    assert sum(parameter.numel() for parameter in model.decoder.connection.parameters()) == numbers
    assert not any(isinstance(module, nn.LayerNorm) for module in model.modules())


@pytest.mark.parametrize(
    ("language", "file"),
    [("python", "model/connections/rezero.py"), ("yaml", "recipes/multi30k/rezero-tiny.yaml")],
)
def test_contributing_shows_the_files_as_they_are(language: str, file: str) -> None:
    """The worked example of CONTRIBUTING.md is the real code and the real recipe."""
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = re.search(rf"^ *```{language}\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE)
    assert shown is not None
    real = Path(deepwire.__file__).parent / file
    assert textwrap.dedent(shown[1]) == real.read_text(encoding="utf-8")
