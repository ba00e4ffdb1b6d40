"""Stacks whose sub-layers are given functions of one position, and how golden parameters lie in them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from golden_names import FOLDER, GRADIENT_TOLERANCE, OUTPUT_TOLERANCE, deviation
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.layers import RMSNorm
from deepwire.model.stack import Stack, StackParts
from deepwire.model.stack_spec import Side

DIM = 16


class GivenFunction(nn.Module):
    """F(u) = W2 gelu(W1 u + b1) + b2, as any kind of sub-layer."""

    def __init__(self) -> None:
        super().__init__()
        self.W1, self.b1 = nn.Parameter(torch.empty(32, DIM)), nn.Parameter(torch.empty(32))
        self.W2, self.b2 = nn.Parameter(torch.empty(DIM, 32)), nn.Parameter(torch.empty(DIM))

    def forward(self, x: Tensor, *_: object) -> Tensor:
        """The function of `[B, T, d]`."""
        inner = functional.gelu(functional.linear(x, self.W1, self.b1))
        return functional.linear(inner, self.W2, self.b2)


def encoder_of(settings: Mapping[str, object], *, heads: int = 2) -> Stack:
    """An encoder without feed-forward sub-layers, but for what `settings` say."""
    config = ModelConfig.model_validate(
        {
            "d_model": DIM,
            "heads": heads,
            "feed_forward": 32,
            "activation": "gelu",
            "dropout": 0.0,
            "norm_eps": 1e-5,
            "bias": {"attention": False},
            "encoder": {"feed_forward": False, **settings},
            "decoder": {"layers": 1},
        }
    )
    return build_model(config, 8, 8).stack("encoder")


def with_sublayers(stack: Stack, mixers: list[nn.Module], feed_forwards: list[nn.Module]) -> Stack:
    """The stack with other sub-layers."""
    sockets = stack.connection, stack.aggregation, stack.fusion
    return type(stack)(DIM, StackParts(*sockets, mixers, (), feed_forwards))  # type: ignore[arg-type]


def use_rms_norms(stack: Stack, eps: float) -> None:
    """RMS norms in the places of the connection's layer norms."""
    connection = stack.connection
    connection.norms = nn.ModuleList(RMSNorm(DIM, eps) for _ in connection.calls)
    connection.final_norm = RMSNorm(DIM, eps)


def golden_case(name: str) -> dict[str, Tensor]:
    """The tensors of a case."""
    return load_file(FOLDER / "modern" / f"{name}.safetensors")


def close(found: Tensor | None, expected: Tensor, tolerance: float) -> bool:
    """Within the tolerance, relative to the largest entry where that exceeds 1."""
    largest = max(1.0, float(expected.abs().max()))
    return found is not None and deviation(found.reshape(expected.shape), expected) < tolerance * largest


def load_case(
    stack: Stack, golden: Mapping[str, Tensor], renamed: Mapping[str, str]
) -> dict[str, tuple[nn.Parameter, slice]]:
    """Copy the parameters of a case into a stack, all of whose parameters must be in it; where they lie.

    Args:
        stack: With sub-layers of any kind.
        golden: A case.
        renamed: Where a golden parameter lies, by a pattern of its whole name: our name, behind which its
            rows may stand as `:NUMBER` or `:FIRST:STOP`.
    """
    places: dict[str, tuple[nn.Parameter, slice]] = {}
    for each in below(golden, "p."):
        (ours,) = {re.sub(f"^{old}$", new, each) for old, new in renamed.items() if re.fullmatch(old, each)}
        ours = re.sub(r"(norm.*\.)gain", r"\1weight", ours)  # of norms alone
        name, *numbers = ours.split(":")
        rows = slice(None)
        if numbers:
            rows = slice(int(numbers[0]), int(numbers[1]) if numbers[1:] else int(numbers[0]) + 1)
        places[each] = (stack.get_parameter(name), rows)
    assert {id(place) for place, _ in places.values()} == {id(place) for place in stack.parameters()}
    with torch.no_grad():
        for each, (parameter, rows) in places.items():
            part = parameter if rows == slice(None) else parameter[rows]
            part.copy_(golden[f"p.{each}"].reshape(part.shape))
    return places


def check_case(
    stack: Stack, golden: Mapping[str, Tensor], renamed: Mapping[str, str], context: Context | None = None
) -> None:
    """The result of a stack, and the gradients of its input and of every parameter; see `load_case`."""
    places = load_case(stack, golden, renamed)
    x = golden["in.x"].clone().requires_grad_()
    (result,), *_ = stack(x, context or Context())
    assert close(result, golden["out.result"], OUTPUT_TOLERANCE)
    (result * golden["ct.result"]).sum().backward()
    assert close(x.grad, golden["g.in.x"], GRADIENT_TOLERANCE)
    for each, (parameter, rows) in places.items():
        assert parameter.grad is not None, each
        found = parameter.grad if rows == slice(None) else parameter.grad[rows]
        assert close(found, golden[f"g.p.{each}"], GRADIENT_TOLERANCE), each


def given_stack(connection: object, side: Side, layers: int, **model: object) -> tuple[Stack, dict[str, str]]:
    """A stack with this connection whose sub-layers are functions, and where F0, F1, ... lie in it."""
    stacks = {each: {"layers": layers, "connection": connection} for each in ("encoder", "decoder")}
    settings = {"d_model": DIM, "heads": 4, "feed_forward": 32, "dropout": 0.0, "norm_eps": 1e-5}
    built = build_model(ModelConfig.model_validate({**settings, **stacks, **model}), 8, 8)
    own = built.stack(side)
    folders = {"mixer": "mixers", "cross": "crosses", "feed_forward": "feed_forwards"}
    parts: dict[str, list[GivenFunction]] = {folder: [] for folder in folders.values()}
    renamed = {}
    for number, call in enumerate(own.connection.calls):
        folder = folders[call.kind]
        renamed[rf"F{number}\.(\w+)"] = rf"{folder}.{len(parts[folder])}.\1"
        parts[folder].append(GivenFunction())
    sockets = own.connection, own.aggregation, own.fusion
    return Stack(DIM, StackParts(*sockets, *parts.values())), renamed  # type: ignore[arg-type]


def nothing_from(side: Side, layers: int) -> Context:
    """The memory of given functions, which read none."""
    return Context(memory=(None,) * layers if side == "decoder" else ())  # type: ignore[arg-type]


def below(golden: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors with this prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in golden.items() if name.startswith(prefix)}
