"""Hierarchical aggregation: what is merged where, its options, and whole models with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from one_socket import aggregated
from torch import Tensor

from deepwire.model.aggregations.hierarchical import (
    Combiner,
    Hierarchical,
    HierarchicalConfig,
)
from deepwire.model.config import ModelConfig

CONTEXT = replace(
    ModelConfig.model_validate({"d_model": 8, "heads": 2, "feed_forward": 12}).specs()["encoder"], layers=5
)


def merge(combiner: Combiner, *vectors: Tensor) -> Tensor:
    """The equation with a sigmoid, written out."""
    hidden = torch.sigmoid(torch.cat(vectors, -1) @ combiner.input.weight.t() + combiner.input.bias)
    total = hidden @ combiner.output.weight.t() + torch.stack(vectors).sum(0)
    centred = total - total.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + combiner.norm.eps).sqrt()
    return centred / deviation * combiner.norm.weight + combiner.norm.bias


@pytest.mark.parametrize("block_input", [True, False])
def test_what_the_layers_of_five_read_in_blocks_of_two(block_input: bool) -> None:
    """Layer outputs pass inside a block; a block's end is merged; the last block has one layer."""
    torch.manual_seed(0)
    aggregation = HierarchicalConfig(block_input=block_input).build(CONTEXT)
    assert isinstance(aggregation, Hierarchical)
    first, second, third = (module for module in aggregation.combiners if isinstance(module, Combiner))
    y0, *y = torch.randn(6, 2, 3, 8).unbind(0)
    reads = aggregated(aggregation, [y0, *y])
    assert torch.equal(reads[0], y0)
    assert torch.equal(reads[1], y[0])
    block1 = merge(first, y[0], y[1])
    assert torch.allclose(reads[2], block1, atol=1e-6)
    assert torch.equal(reads[3], y[2])
    block2 = merge(second, block1, y[2], y[3]) if block_input else merge(second, y[2], y[3])
    assert torch.allclose(reads[4], block2, atol=1e-6)
    block3 = merge(third, block2, y[4]) if block_input else merge(third, y[4])
    assert torch.allclose(reads[5], block3, atol=1e-6)
