from __future__ import annotations

import pytest
import torch
from small_runs import ModelMaker
from torch import Tensor

from deepwire.lab.signals import Signal, signal_sizes
from deepwire.model.context import Context
from deepwire.training.device import DeviceBatch


def batch(padding: int = 0) -> DeviceBatch:
    """Two sentences, with columns of padding behind them if wanted."""
    source = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0]])
    target_input, target_output = torch.tensor([[1, 5, 9], [1, 6, 0]]), torch.tensor([[5, 9, 2], [6, 2, 0]])
    tensors = (source, target_input, target_output)
    return DeviceBatch(*(torch.nn.functional.pad(each, (0, padding)) for each in tensors))


def rms(x: Tensor, real: Tensor) -> float:
    return float(x.detach()[real].square().mean().sqrt())


def close(measured: float, expected: float) -> bool:
    return measured == pytest.approx(expected, rel=1e-4)


def test_sizes_are_those_of_a_pass_by_hand(make_model: ModelMaker) -> None:
    model = make_model({"connection": "pre_norm"}, {"connection": "post_norm"})
    read = batch()
    sizes = signal_sizes(model, [read], (0.1, "uniform"))
    words, prefix = read.source != 0, read.target_input != 0
    embedded = model.source_embedding(read.source)
    positions = model.source_embedding.vectors(0, 4)
    assert positions is not None
    assert close(sizes[Signal("encoder", "embedding")], rms(embedded, words))
    assert close(sizes[Signal("encoder", "position part")], rms(positions.expand_as(embedded), words))
    assert close(sizes[Signal("encoder", "token part")], rms(embedded - positions, words))
    normal = torch.nn.functional.layer_norm(embedded, (16,), eps=1e-6)
    assert close(sizes[Signal("encoder", "enters", 0)], rms(embedded, words))
    assert close(sizes[Signal("encoder", "reads", 0)], rms(normal, words))
    bias = torch.zeros(2, 1, 1, 4).masked_fill(~words[:, None, None], float("-inf"))
    mixed = model.encoder.mixers[0](normal, Context(padding=bias))
    assert close(sizes[Signal("encoder", "gives", 0)], rms(mixed, words))
    after = embedded + mixed
    forward = model.encoder.feed_forwards[0](
        torch.nn.functional.layer_norm(after, (16,), eps=1e-6), Context()
    )
    assert close(sizes[Signal("encoder", "output", 0)], rms(after + forward, words))
    assert close(sizes[Signal("encoder", "enters", 1)], sizes[Signal("encoder", "output", 0)])
    assert close(sizes[Signal("encoder", "results")], rms(model.encode(read.source)[0][0], words))

    (result,) = model.decode(read.source, read.target_input)
    logits = result @ model.head.table.weight.t()
    assert close(sizes[Signal("decoder", "logits")], rms(logits, prefix))
    assert close(sizes[Signal("decoder", "output", 1)], rms(result, prefix))  # post-norm: nothing after it


def test_gradients_are_those_of_the_loss(make_model: ModelMaker) -> None:
    model = make_model({}, {"connection": "post_norm"})
    read = batch()
    sizes = signal_sizes(model, [read], (0.1, "uniform"))
    result = model.decode(read.source, read.target_input)[0].detach().requires_grad_()
    sums = model.head.loss([result], read.target_output, 0.1, "uniform")
    sums.smoothed.backward()
    assert result.grad is not None
    real = read.target_input != 0
    assert close(sizes[Signal("decoder", "output gradient", 1)], rms(result.grad, real))

    model.zero_grad()
    whole = model.loss(read.source, read.target_input, read.target_output, 0.1, "uniform")
    (whole.smoothed / whole.tokens).backward()
    of_first = ("mixers.0.", "feed_forwards.0.", "connection.norms.0.", "connection.norms.1.")
    first = [parameter for name, parameter in model.encoder.named_parameters() if name.startswith(of_first)]
    squares = torch.cat([each.grad.flatten() for each in first if each.grad is not None])
    assert close(sizes[Signal("encoder", "parameter gradient")], float(squares.square().mean().sqrt()))


def test_padding_and_cutting_into_batches_change_nothing(make_model: ModelMaker) -> None:
    model = make_model({"connection": "depth_lstm"}, {"aggregation": "dlcl"})
    whole = signal_sizes(model, [batch()])
    for other in (signal_sizes(model, [batch(padding=3)]), signal_sizes(model, batch().cut(2))):
        assert other.keys() == whole.keys()
        assert all(close(other[key], size) for key, size in whole.items())
