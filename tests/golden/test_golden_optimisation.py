"""SimCut's loss against that of the authors' code, and Muon against an exact computation."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from golden_names import FOLDER, GRADIENT_TOLERANCE
from safetensors.torch import load_file
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.embedding import TokenEmbedding
from deepwire.model.fusions.top import TopConfig
from deepwire.model.head import OutputHead
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.pair_loss import linear_sim_cut
from deepwire.training.optimizers.muon import Matrices, Muon, MuonConfig
from deepwire.training.optimizers.optimizer import Step

VOCABULARY, PADDING = 11, 1


def head_that_shows_logits() -> OutputHead:
    """An output head whose logits are what it reads."""
    table = TokenEmbedding(VOCABULARY, VOCABULARY, PADDING)
    table.weight.data = torch.eye(VOCABULARY)
    context: StackSpec = ModelConfig().specs()["decoder"]
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


@pytest.mark.parametrize("form", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("shape", ["12x8", "8x12"])
def test_muon(form: str, shape: str) -> None:
    """Three updates; `out.exact` is the iteration without rounding, `out.W` that of torch in bfloat16."""
    case = load_file(FOLDER / "muon.safetensors")
    config = MuonConfig.model_validate({"rate_form": form, "weight_decay": 0.1})
    weight = case[f"in.W.{shape}"].clone()
    muon = Muon({"w": Matrices(weight, 1)}, config)
    for update in (1, 2, 3):
        gradients = {"w": case[f"in.G{update}.{shape}"]}
        muon.step(gradients, Step(0.02, update, torch.tensor(1.0), torch.tensor(True)))
        torch.testing.assert_close(
            muon.state()["momentum.w"], case[f"out.buffer.{update}.{shape}"], rtol=0, atol=1e-6
        )
        exact = case[f"out.exact.{form}.{update}.{shape}"].float()
        torch.testing.assert_close(weight, exact, rtol=0, atol=1e-5)
        torch.testing.assert_close(weight, case[f"out.W.{form}.{update}.{shape}"], rtol=0, atol=1e-3)
