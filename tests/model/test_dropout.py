"""Every place of `model.dropout` with every mixer, connection and fusion.

A place that lets nothing through leaves exactly those parameters without a gradient that reach the loss
through it alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from test_product import of_both_sides
from torch import Tensor, nn

from deepwire.model.stack import Stack
from deepwire.model.stack_spec import SIDES, DropoutConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import batch, small_model

ALL = 1 - 1e-9  # everything is dropped: such a probability rounds to 1
# Parameters of sub-layers and hidden parts. By place and choice, those that are behind a place.
LOOKED_AT = r"(mixers|crosses|feed_forwards|fusion)\..*|connection\.(hiddens|contexts|units)\..*"
BEHIND = {
    # Softmax weights of all kinds of attention. The average of a merged attention has none of them.
    ("attention", "any"): r"(crosses|connection\.contexts)\..*",
    **{
        ("attention", mixer): r"mixers\..*"
        for mixer in ("self_attention", "value_residual", "lime", "mixed_attention", "luna")
    },
    ("attention", "merged_attention"): r"mixers\.\d+\.(query|key)\.weight",
    ("attention", "per_layer"): r"mixers\.\d+\.(query_key_value|output)\.weight",
    # After the activation in feed-forward and hidden parts, of cells the candidate.
    ("activation", "any"): r"(feed_forwards\.\d+|mixers\.\d+\.feed_forward)\.(input\..*|output\.weight)",
    ("activation", "gru"): r"mixers\..*cell\.(input|recurrent|norm)\..*",
    # The gate that lets the candidate in is behind it too.
    ("activation", "ln_lstm"): r"mixers\..*cell\.linear\.weight\.[03]",
    ("activation", "mhplstm"): r"mixers\.\d+\.cells\.hidden_(norm|output)\..*",
    ("activation", "depth_lstm"): r"connection\.hiddens\..*",
    ("activation", "depth_rnn"): r"(connection\.hiddens|mixers|crosses)\..*",  # nothing else goes up
    ("activation", "mlrf"): r"fusion\.(input\.weight|layer_embedding|score\.weight)",
    ("activation", "dynamic_combination"): r"fusion\.networks\.\d+\.maps\.([01]\..*|2\.weight)",
    ("activation", "dynamic_routing"): r"(mixers|crosses)\..*|fusion\..*maps\.(0\..*|1\.weight)",
    ("activation", "em_routing"): r"(mixers|crosses)\..*|fusion\..*maps\.(0\..*|1\.weight)",
    # The output of each sub-layer, and of hidden parts of two layers.
    ("sublayer", "any"): r"(mixers|crosses|feed_forwards)\..*|connection\.(hiddens|contexts|units)\..*",
    ("sublayer", "transparent"): r"fusion\.weights",
    # The weights of a group that is the only one change nothing anyway.
    **{(place, "groups"): r"fusion\.weights" for place in ("attention", "activation", "sublayer")},
}
# RNMT+: the attention and the first layer below it are not dropped.
EXCEPT = {("sublayer", "decoder", "rnmt"): r"crosses\..*|mixers\.0\..*"}


def shut(place: str) -> dict[str, float]:
    """Dropout at one place alone, which lets nothing through."""
    return {**dict.fromkeys(DropoutConfig.model_fields, 0.0), place: ALL}


def parts(module: nn.Module) -> Iterator[tuple[str, Tensor | None]]:
    """Names and gradients of parameters; the four maps of an LSTM cell, which lie side by side, apart."""
    for name, parameter in module.named_parameters():
        if name.endswith("cell.linear.weight"):
            gradients = parameter.new_zeros(4) if parameter.grad is None else parameter.grad.chunk(4)
            yield from ((f"{name}.{number}", each) for number, each in enumerate(gradients))
        else:
            yield name, parameter.grad


def without_gradient(module: nn.Module) -> set[str]:
    """The names of those that the loss does not depend on."""
    return {name for name, gradient in parts(module) if gradient is None or not gradient.any()}


def behind(place: str, stack: Stack, model: TranslationModel) -> set[str]:
    """The names that the table gives for a stack."""
    side = next(side for side in SIDES if model.stack(side) is stack)
    types = ("any", *(socket.type for socket in model.config.stack(side).sockets().values()))
    wanted = [BEHIND[place, each] for each in types if (place, each) in BEHIND]
    spared = [EXCEPT[place, side, each] for each in types if (place, side, each) in EXCEPT]
    names = {name for name, _ in parts(stack)}
    return {
        name
        for name in names
        if any(re.fullmatch(pattern, name) for pattern in wanted)
        and not any(re.fullmatch(pattern, name) for pattern in spared)
    }


@pytest.mark.parametrize("socket", ["mixer", "connection", "fusion"])
def test_every_place_is_where_it_says(socket: str) -> None:
    """One stack at a time, as cross-attention that lets nothing through would hide the encoder."""
    for name, wanted in of_both_sides(socket):
        evaluated = []
        for place in DropoutConfig.model_fields:
            model = small_model({**wanted, "embeddings": {"tie": "none"}, "dropout": shut(place)})
            evaluated.append(float(model.loss(*batch()).nll))
            if place == "embedding":
                model.train().loss(*batch()).smoothed.backward()
                tables = {each for each in without_gradient(model) if each.endswith("table.weight")}
                assert tables == {"source_embedding.table.weight", "target_embedding.table.weight"}, name
                continue
            for side in SIDES:
                model.eval().zero_grad()
                stack = model.stack(side).train()
                loss = model.loss(*batch())
                loss.smoothed.backward()
                found = {each for each in without_gradient(stack) if re.fullmatch(LOOKED_AT, each)}
                assert found == behind(place, stack, model), f"{side}.{socket} {name}: dropout.{place}"
                assert not found or float(loss.nll) != evaluated[-1] or name == "groups", f"{name}: {place}"
        assert len({*evaluated}) == 1, f"{name}: dropout changes what is evaluated"
