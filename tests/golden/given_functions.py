"""Stacks whose sub-layers are given functions of one position, so that only their wiring is tested."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from golden_names import FOLDER, deviation
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Side
from deepwire.model.stack import Stack

DIM = 16


class GivenFunction(nn.Module):
    """F(u) = W2 gelu(W1 u + b1) + b2, as any kind of sub-layer."""

    def __init__(self) -> None:
        super().__init__()
        self.W1, self.b1 = nn.Parameter(torch.empty(32, DIM)), nn.Parameter(torch.empty(32))
        self.W2, self.b2 = nn.Parameter(torch.empty(DIM, 32)), nn.Parameter(torch.empty(DIM))

    def forward(self, x: Tensor, *_: object) -> Tensor:
        inner = functional.gelu(functional.linear(x, self.W1, self.b1))
        return functional.linear(inner, self.W2, self.b2)

    parallel = forward


class RMSNorm(nn.RMSNorm):
    """In the place of a layer norm, of which some authors leave out mean and bias."""

    def forward(self, x: Tensor, languages: Tensor | None = None) -> Tensor:
        return super().forward(x)


def given_stack(
    connection: object, side: Side, layers: int, **model: object
) -> tuple[Stack, list[GivenFunction]]:
    """A stack with this connection whose sub-layers are functions, and these in their order."""
    stacks = {each: {"layers": layers, "connection": connection} for each in ("encoder", "decoder")}
    settings = {"d_model": DIM, "heads": 4, "feed_forward": 32, "dropout": 0.0, "norm_eps": 1e-5}
    built = build_model(ModelConfig.model_validate({**settings, **stacks, **model}), 8, 8)
    own = built.encoder if side == "encoder" else built.decoder
    functions = [GivenFunction() for _ in own.connection.calls]

    def of(wanted: str) -> list[GivenFunction]:
        calls = zip(functions, own.connection.calls, strict=True)
        return [function for function, call in calls if call.kind == wanted]

    parts = (of("mixer"), of("cross"), of("feed_forward"))
    return Stack(DIM, own.connection, own.aggregation, own.fusion, *parts), functions  # type: ignore[arg-type]


def modern(name: str) -> dict[str, Tensor]:
    """A golden case."""
    return load_file(FOLDER / "modern" / f"{name}.safetensors")


def below(golden: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """What is called so, by the rest of its name."""
    return {name.removeprefix(prefix): value for name, value in golden.items() if name.startswith(prefix)}


def close(found: Tensor | None, expected: Tensor, tolerance: float) -> bool:
    """Within the tolerance, relative to the largest entry where that exceeds 1."""
    return found is not None and deviation(found, expected) < tolerance * max(
        1.0, float(expected.abs().max())
    )
