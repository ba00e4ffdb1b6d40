"""Dense connections and learned residuals, against their authors' code or the papers' equations."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from given_functions import (
    DIM,
    GivenFunction,
    check_case,
    close,
    encoder_of,
    golden_case,
    use_rms_norms,
    with_sublayers,
)
from golden_names import OUTPUT_TOLERANCE
from torch import Tensor, nn

from deepwire.model.context import Context
from deepwire.model.layers import RMSNorm
from deepwire.model.mixers.mixer import SideMixer, SideState, State
from deepwire.model.mixers.self_attention import SelfAttention
from deepwire.model.mixers.shared_values import SharedValueAttention

FUNCTIONS = {r"F(\d)\.(\w+)": r"mixers.\1.\2"}
NORMS = {
    **FUNCTIONS,
    r"norm(\d)\.gain": r"connection.norms.\1.weight",
    r"norm(\d)\.bias": r"connection.norms.\1.bias",
    r"final\.gain": "connection.final_norm.weight",
    r"final\.bias": "connection.final_norm.bias",
}
CASES: dict[str, tuple[Mapping[str, object], int, Mapping[str, str]]] = {
    "dwa_1_1": (
        {"aggregation": "dwa"},
        4,
        {f"dwa{layer}": f"aggregation.mix.{layer - 1}" for layer in range(1, 5)},
    ),
    "dwa_2_2": (
        {"aggregation": {"type": "dwa", "dilation": 2, "period": 2}},
        4,
        {"dwa2": "aggregation.mix.0", "dwa4": "aggregation.mix.1"},
    ),
    "laurel_rw": (
        {"connection": "laurel"},
        3,
        {r"rw(\d)": r"connection.weights:\1"},
    ),
    "laurel_lr": (
        {"connection": {"type": "laurel", "weights": "none", "rank": 4}},
        3,
        {r"A(\d)": r"connection.down.\1", r"B(\d)": r"connection.up.\1"},
    ),
    "delta_scalar": (
        {"connection": "delta"},
        4,
        {
            r"delta(\d)\.w_beta": r"connection.weights.\1:0",
            r"delta(\d)\.w_v": r"connection.weights.\1:1",
            r"delta(\d)\.c_beta": r"connection.biases.\1:0",
            r"delta(\d)\.c_v": r"connection.biases.\1:1",
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_stacks_of_given_functions(name: str) -> None:
    """One function a layer, in the place of the mixer."""
    settings, layers, own = CASES[name]
    stack = encoder_of({"layers": layers, **settings})
    stack = with_sublayers(stack, [GivenFunction() for _ in range(layers)], [])
    check_case(stack, golden_case(name), {**NORMS, **own})


def test_mudd_one_way() -> None:
    """The sums that one way of weights makes, with the RMS norms of the authors' models."""
    stack = encoder_of({"layers": 3, "aggregation": "mudd"})
    use_rms_norms(stack, 1e-6)
    stack = with_sublayers(stack, [GivenFunction() for _ in range(3)], [])
    check_case(
        stack,
        golden_case("mudd_one_way"),
        {
            **NORMS,
            r"norm(\d)\.ffn\.gain": r"connection.norms.\1.weight",
            r"mudd(\d)\.W_1": r"aggregation.makers.\1.input",
            r"mudd(\d)\.W_2": r"aggregation.makers.\1.output",
            r"mudd(\d)\.c": r"aggregation.makers.\1.static",
        },
    )


@pytest.mark.parametrize(
    ("name", "mixer", "own"),
    [
        ("lime", "lime", {r"R(\d)": r"mixers.\1.below.router"}),
        ("value_residual", "value_residual", {}),
        (
            "value_residual_learnable",
            {"type": "value_residual", "form": "learned"},
            {r"lambda(\d)": r"mixers.\1.below.share"},
        ),
    ],
)
def test_values_of_layers_below(name: str, mixer: object, own: Mapping[str, str]) -> None:
    """Causal self-attention alone, with the RMS norms of the authors' models."""
    stack = encoder_of({"layers": 3, "mixer": mixer})
    use_rms_norms(stack, 1e-6)
    for each in stack.mixers:
        assert isinstance(each, SelfAttention)
        each.causal = True
    parts = {
        rf"layer(\d)\.W_{part}": rf"mixers.\1.query_key_value.weight:{first}:{first + DIM}"
        for part, first in (("q", 0), ("k", DIM), ("v", 2 * DIM))
    }
    maps = {**parts, r"layer(\d)\.W_o": r"mixers.\1.output.weight"}
    golden = golden_case(name)
    check_case(stack, golden, {**NORMS, **maps, **own})
    below: tuple[Tensor, ...] = ()
    x = golden["in.x"]
    for layer, each in enumerate(stack.mixers):
        assert isinstance(each, SharedValueAttention)
        _, key, value, below = each._mixed(stack.connection.norms[layer](x), below, None)
        if name == "lime":
            assert close(key, golden[f"out.keys{layer}"], OUTPUT_TOLERANCE)
        assert close(value, golden[f"out.values{layer}"], OUTPUT_TOLERANCE)
        x = golden[f"out.layer{layer + 1}"]


class GivenAttention(SideMixer):
    """W_o(s(W_k k) * W_q q + W_v v), one position at a time, in the place of the mixer."""

    def __init__(self) -> None:
        super().__init__()
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Parameter(torch.empty(DIM, DIM)) for _ in range(4))

    def forward_beside(self, x: Tensor, side: SideState, context: Context) -> tuple[Tensor, SideState]:
        """Reads one vector each; all of one in the lowest layer."""
        return self.mix(x, *(side or (x, x))), side

    def init_state(self, rows: int, like: Tensor) -> State:
        """It never steps."""
        raise NotImplementedError

    step_beside = init_state  # type: ignore[assignment]

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The equation."""
        gated = torch.sigmoid(key @ self.W_k.T) * (query @ self.W_q.T)
        return (gated + value @ self.W_v.T) @ self.W_o.T


def test_mudd_four_ways() -> None:
    """Queries, keys, values and the stream of sums of their own, with the wide last layer of the code."""
    mudd = {"type": "mudd", "ways": 4, "last_expansion": 4}
    stack = encoder_of({"layers": 3, "feed_forward": True, "aggregation": mudd})
    use_rms_norms(stack, 1e-6)
    stack.aggregation.norms = nn.ModuleList(
        nn.ModuleList(RMSNorm(DIM, 1e-6) for _ in range(2)) for _ in range(2)
    )
    mixers: list[nn.Module] = [GivenAttention() for _ in range(3)]
    stack = with_sublayers(stack, mixers, [GivenFunction() for _ in range(3)])
    norms = {
        rf"norm{layer}\.{part}\.gain": f"connection.norms.{2 * layer + (part == 'ffn')}.weight"
        for layer in range(3)
        for part in ("attn", "q", "ffn")
    }
    of_keys = {
        rf"norm{layer}\.{part}\.gain": f"aggregation.norms.{layer - 1}.{number}.weight"
        for layer in (1, 2)
        for number, part in enumerate("kv")
    }
    check_case(
        stack,
        golden_case("mudd_four_way"),
        {
            **norms,
            **of_keys,
            r"final\.gain": "connection.final_norm.weight",
            r"F(\d)\.(\w+)": r"feed_forwards.\1.\2",
            r"G(\d)\.(\w+)": r"mixers.\1.\2",
            r"mudd(\d)\.W_1": r"aggregation.makers.\1.input",
            r"mudd(\d)\.W_2": r"aggregation.makers.\1.output",
            r"mudd(\d)\.c": r"aggregation.makers.\1.static",
        },
    )
