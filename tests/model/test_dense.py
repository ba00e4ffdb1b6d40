"""Dense residual connections and DLCL: every option against the equations, and whole models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_socket import aggregated
from torch import Tensor
from torch.nn import functional

from deepwire.model.aggregations.dlcl import DLCL, DenseConfig, DLCLConfig
from deepwire.model.config import ModelConfig
from deepwire.model.stack_spec import NormStyle

DIM, LAYERS = 8, 4
CONTEXT = replace(ModelConfig.model_validate({"d_model": DIM, "heads": 2}).specs()["encoder"], layers=LAYERS)
# How a model of post-norm layers (Eq. 9) or of pre-norm layers (Eq. 8) is built.
STYLES: list[NormStyle] = ["input", "output"]


def expected(config: DLCLConfig, style: NormStyle, aggregation: DLCL, outputs: Tensor) -> list[Tensor]:
    """Eq. 8 and 9 with the options, entry by entry; `aggregation` gives the norms and the learned weights."""
    after = config.norm == "after" or (config.norm == "auto" and style == "output")
    before = config.norm in ("before", "auto") and not after
    norms = list(aggregation.norms)
    embedding = config.embedding_norm
    stored = []
    for index, output in enumerate(outputs):
        here = (before and (index > 0 or embedding != "none")) or (
            index == 0 and embedding == "twice" and config.norm != "none"
        )
        stored.append(norms[index](output) if here else output)
    found = []
    for row in range(LAYERS + 1):
        reach = row + 1
        if config.window and (config.window_form == "enforced" or config.softmax):
            reach = min(config.window, row + 1)
        entries = range(row + 1 - reach, row + 1)
        weights = aggregation.mix[row, entries.start : row + 1]
        if config.softmax:
            weights = weights.exp() / weights.exp().sum(0)
        total = torch.zeros_like(outputs[0])
        for weight, entry in zip(weights, entries, strict=True):
            features = torch.stack([weight[feature % weight.size(0)] for feature in range(DIM)])
            total = total + features * stored[entry]
        found.append(norms[row](total) if after and (row > 0 or embedding != "none") else total)
    return found


options = st.fixed_dictionaries(
    {
        "initial": st.sampled_from(["average", "one"]),
        "learned": st.booleans(),
        "norm": st.sampled_from(["auto", "before", "after", "none"]),
        "embedding_norm": st.sampled_from(["none", "once", "twice"]),
        "weights": st.sampled_from(["scalar", "vector", 2, 4]),
        "softmax": st.booleans(),
        "window": st.sampled_from([None, 1, 2, 3, 9]),
        "window_form": st.sampled_from(["enforced", "initial"]),
    }
)


@settings(max_examples=60, deadline=None)
@given(options, st.sampled_from(STYLES), st.integers(0, 2**16))
def test_every_option_follows_the_equations(
    chosen: Mapping[str, object], style: NormStyle, seed: int
) -> None:
    """Also those that no golden vector has: Table 6's fixed weights without norms, windows under softmax."""
    torch.manual_seed(seed)
    config = DLCLConfig.model_validate(chosen)
    aggregation = config.build(replace(CONTEXT, norm_style=style))
    assert isinstance(aggregation, DLCL)
    with torch.no_grad():
        for parameter in aggregation.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        outputs = torch.randn(LAYERS + 1, 2, 3, DIM)
        found = aggregated(aggregation, list(outputs))
        for read, wanted in zip(found, expected(config, style, aggregation, outputs), strict=True):
            assert torch.allclose(read, wanted, atol=1e-5)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("window", [None, 2])
def test_dense_average_and_sum(style: NormStyle, window: int | None) -> None:
    """Plain sums and means of normalised outputs (before) or of outputs (after)."""
    outputs = torch.randn(LAYERS + 1, 2, 3, DIM)

    def norm(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (DIM,), eps=CONTEXT.norm_eps)

    for weights in ("average", "sum"):
        config = DenseConfig.model_validate({"weights": weights, "window": window})
        aggregation = config.build(replace(CONTEXT, norm_style=style))
        assert isinstance(aggregation, DLCL)
        for row, read in enumerate(aggregated(aggregation, list(outputs))):
            chosen = outputs[max(0, row + 1 - (window or LAYERS + 1)) : row + 1]
            if style == "input":
                chosen = norm(chosen)
            total = chosen.mean(0) if weights == "average" else chosen.sum(0)
            assert torch.allclose(read, norm(total) if style == "output" else total, atol=1e-5)
