"""SimCut's loss against that of the authors' code."""

from __future__ import annotations

from functools import partial

import torch
from golden_names import FOLDER, GRADIENT_TOLERANCE
from safetensors.torch import load_file
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.context import StackContext
from deepwire.model.embedding import TokenEmbedding
from deepwire.model.fusions.top import TopConfig
from deepwire.model.head import OutputHead
from deepwire.ops.sim_cut import linear_sim_cut

VOCABULARY, PADDING = 11, 1


def head_that_shows_logits() -> OutputHead:
    """An output head whose logits are what it reads."""
    table = TokenEmbedding(VOCABULARY, VOCABULARY, PADDING)
    table.weight.data = torch.eye(VOCABULARY)
    context: StackContext = ModelConfig().contexts()["decoder"]
    return OutputHead(table, bias=False, fusion=TopConfig().build(context))


def test_sim_cut() -> None:
    """Also the gradients, which reach both passes."""
    case: dict[str, Tensor] = load_file(FOLDER / "simcut_loss.safetensors")
    logits = torch.cat([case["in.logits"], case["in.logits_cut"]]).requires_grad_()
    pair = partial(linear_sim_cut, alpha=3.0)
    sums = head_that_shows_logits().pair_loss([logits], case["in.targets"], 0.1, "uniform_wrong", pair)
    torch.testing.assert_close(sums.smoothed, case["out.result"], rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(sums.divergence, case["out.kl"], rtol=1e-6, atol=1e-5)
    (gradient,) = torch.autograd.grad(sums.smoothed * case["ct.result"], logits)
    wanted = torch.cat([case["g.in.logits"], case["g.in.logits_cut"]])
    torch.testing.assert_close(gradient, wanted, rtol=0, atol=GRADIENT_TOLERANCE)
