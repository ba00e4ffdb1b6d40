"""Counted operations and bytes against closed formulas, and against what really runs."""

from __future__ import annotations

import pytest
import torch
from choices import SOCKETS, choices, members, model_settings

from deepwire.model.config import ModelConfig
from deepwire.model.cost import (
    OperationCounter,
    encoding_operations,
    meta_model,
    parameter_bytes,
    step_cost,
    training_cost,
)
from deepwire.testing import SIZE, small_model

D, INNER, LAYERS, WORDS = 32, 48, 2, 100
S, T, BEAM = 7, 5, 3
SLOTS = 16  # of the smallest store, which attention reads as a whole
PLAIN = {"mixer": "self_attention", "connection": "pre_norm", "aggregation": "last", "fusion": "top"}
NO_PRODUCTS = {"aten.cummax"}
PRODUCT_NAMES = ("mm", "mv", "dot", "linear", "conv", "attention", "einsum", "addr", "ger", "cdist")


@pytest.fixture
def transformer():
    config = {"d_model": D, "heads": 4, "feed_forward": INNER, "dropout": 0.1, "bias": {"output": False}}
    stacks = {side: {"layers": LAYERS} for side in ("encoder", "decoder")}
    return meta_model(ModelConfig.model_validate({**config, **stacks}), WORDS, WORDS)


def test_training_a_transformer_costs_what_the_formula_says(transformer) -> None:
    """Two operations a weight and token, twice that backward; attention: two products of T x S x d."""
    cost = training_cost(transformer, source_length=S, target_length=T, sentences=2)
    encoder = S * (4 * D * D + 2 * D * INNER) + 2 * S * S * D
    decoder = T * (6 * D * D + 2 * D * INNER) + S * 2 * D * D + 2 * T * T * D + 2 * T * S * D
    assert cost.layers * T == 6 * LAYERS * (encoder + decoder)
    assert cost.output == 6 * D * WORDS
    assert cost.operations == cost.layers + cost.output


def test_a_step_costs_what_the_formula_says(transformer) -> None:
    position = 3
    cost = step_cost(transformer, sentences=2, beam=BEAM, source_length=S, position=position)
    layer = 2 * (6 * D * D + 2 * D * INNER) + 4 * SLOTS * D + 4 * S * D
    assert cost.operations == 2 * BEAM * (LAYERS * layer + 2 * D * WORDS)
    assert cost.written == 4 * 2 * BEAM * WORDS


def test_a_step_reads_weights_once_and_states_of_every_hypothesis(transformer) -> None:
    position = 3
    first, second = (
        step_cost(transformer, sentences=n, beam=BEAM, source_length=S, position=position).read
        for n in (1, 2)
    )
    # Keys and values of the source for a sentence, those of all slots for every hypothesis, and a mask; the
    # mask of the slots serves all layers.
    memory, states = 2 * S * D + S, 2 * SLOTS * D * BEAM
    assert second - first == 4 * (LAYERS * (memory + states) + SLOTS * BEAM)
    weights = 4 * (LAYERS * (6 * D * D + 2 * D * INNER) + D * WORDS)
    assert weights <= first - (second - first) <= 1.1 * weights


def test_encoding_costs_the_encoder_and_the_memory_of_every_layer(transformer) -> None:
    encoder = 2 * S * (4 * D * D + 2 * D * INNER) + 4 * S * S * D
    assert encoding_operations(transformer, S) == LAYERS * (encoder + 2 * S * 2 * D * D)


def test_costs_grow_with_the_lengths_and_not_with_the_number_of_sentences(transformer) -> None:
    one, many = (training_cost(transformer, source_length=S, target_length=T, sentences=n) for n in (1, 20))
    assert one.operations == many.operations
    assert one.kept == pytest.approx(many.kept, rel=0.05)
    assert many.moved < one.moved
    longer = training_cost(transformer, source_length=2 * S, target_length=T)
    assert longer.operations > one.operations
    assert longer.kept > one.kept


def test_least_bytes_hold_what_is_kept_and_a_share_of_the_weights(transformer) -> None:
    cost = training_cost(transformer, source_length=S, target_length=T)
    assert (
        cost.weights == parameter_bytes(transformer) == 4 * sum(p.numel() for p in transformer.parameters())
    )
    assert cost.least_bytes(10**12) == pytest.approx(2 * cost.kept, rel=1e-6)
    assert cost.least_bytes(100) - cost.least_bytes(200) == pytest.approx(10 * cost.weights / 200)


def test_dropout_and_biases_are_no_products(transformer) -> None:
    cost = training_cost(transformer, source_length=S, target_length=T)
    plain = transformer.config.model_copy(
        update={"bias": transformer.config.bias.model_copy(update={"attention": True})}
    )
    with_bias = training_cost(meta_model(plain, WORDS, WORDS), source_length=S, target_length=T)
    assert with_bias.operations == cost.operations


MEMBERS = [(socket, name) for socket in SOCKETS for name in members(socket)]


@pytest.mark.parametrize(("socket", "name"), MEMBERS, ids=str)
def test_every_choice_costs_what_it_really_runs(socket: str, name: str) -> None:
    """The count without values is that of a real forward and backward pass through the package's loss."""
    model = small_model(with_choice(socket, name))
    empty = meta_model(model.config, SIZE, SIZE)
    # So many tokens that the loss adds no rows of zeros.
    cost = training_cost(empty, source_length=4, target_length=4, sentences=8)
    source, target = torch.full((8, 4), 5), torch.full((8, 4), 6)
    with OperationCounter() as real:
        model.loss(source, target, target, 0.0).smoothed.backward()
    assert cost.operations * 32 == real.operations
    others = real.names - NO_PRODUCTS
    assert not [name for name in others if any(part in name for part in PRODUCT_NAMES)]
    with torch.no_grad():
        state = model.start(source[:2]).expand(2)
        with OperationCounter() as real:
            model.step(torch.full((4,), 6), state)
    step = step_cost(empty, sentences=2, beam=2, source_length=4, position=0)
    assert step.operations == real.operations
    assert 0 < step.read <= parameter_bytes(empty) + 10**5


def with_choice(socket: str, name: str) -> dict[str, object]:
    """A model with the choice in each stack that it may stand in."""
    stacks = []
    for side in ("encoder", "decoder"):
        stack: dict[str, object] = {other: {"type": kind} for other, kind in PLAIN.items()}
        stack["layers"] = 3 if socket == "fusion" else LAYERS  # groups are of three layers
        if {"type": name} in choices(socket, side):
            stack[socket] = {"type": name}
            if name == "rnmt":  # made of recurrent mixers only
                stack["mixer"] = {"type": "ln_lstm"}
        stacks.append(stack)
    return model_settings(*stacks)
