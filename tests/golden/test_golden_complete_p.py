"""CompleteP: rates, decay, epsilon and multipliers of a model against the numbers of the authors' code."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from golden_names import FOLDER
from torch import nn

import deepwire.training.optimizers.optimizer as module
from deepwire.distributed.process_group import ProcessGroup
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.translation_model import TranslationModel
from deepwire.model.update_scales import update_scales
from deepwire.training.optimizers.optimizer import make_optimizer
from deepwire.training.parallel_strategy import ParallelStrategy

GOLDEN = json.loads((FOLDER / "complete_p.json").read_text())
# A parameter of each group of the golden case.
MEMBERS = {
    "embeddings": "source_embedding.table.weight",
    "norms_inside_layers": "encoder.connection.norms.0.weight",
    "matrices_inside_layers": "encoder.feed_forwards.0.output.weight",
    "biases_inside_layers": "encoder.feed_forwards.0.input.bias",
    "final_norm": "encoder.connection.final_norm.weight",
}


def model_of(row: dict[str, Any], width: int = 16, layers: int = 2) -> TranslationModel:
    """A pre-norm model with the ratios of a golden row to a base of this size."""
    config = {
        "d_model": int(width * row["m_d"]),
        "heads": int(2 * row["m_d"]),
        "feed_forward": int(4 * width * row["m_d"]),
        "dropout": 0.0,
        "encoder": {"layers": int(layers * row["m_L"])},
        "decoder": {"layers": int(layers * row["m_L"])},
        "parametrization": {
            "alpha": row["a"],
            "base": {"d_model": width, "heads": 2, "encoder_layers": layers, "decoder_layers": layers},
        },
    }
    torch.manual_seed(1)
    return build_model(ModelConfig.model_validate(config), 30, 30)


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: f"alpha {row['a']}")
def test_adam_gets_the_settings_of_each_group(row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(row)
    settings = GOLDEN["config"]
    given: dict[int, dict[str, float]] = {}

    def adam(parameters: list[nn.Parameter], *_moments: object, **options: Any) -> None:
        for parameter in parameters:
            given[id(parameter)] = {name: options[name] for name in ("lr", "weight_decay", "eps")}

    monkeypatch.setattr(module, "adam", adam)
    config = module.AdamWConfig(weight_decay=settings["weight_decay"], eps=settings["eps"])
    strategy = ParallelStrategy(model, ProcessGroup())
    optimizer = make_optimizer(model, config, None, strategy, scales=update_scales(model))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step(settings["lr"], torch.tensor(1.0))
    parameters = dict(model.named_parameters())
    assert len(given) == len(parameters)
    for group, name in MEMBERS.items():
        assert given[id(parameters[name])] == pytest.approx(row["groups"][group], rel=1e-12), group


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: f"alpha {row['a']}")
def test_multipliers_and_initial_values(row: dict[str, Any]) -> None:
    model = model_of(row)
    x, gives = torch.randn(1, 2, 64), torch.randn(1, 2, 64)
    (after,) = model.encoder.connection.write((x,), 0, x, gives, Context())
    torch.testing.assert_close(after, x + row["residual_branch_multiplier"] * gives)
    without_bias = model.head.logits(x) - model.head.logits(torch.zeros_like(x))
    torch.testing.assert_close(without_bias, row["output_multiplier"] * x @ model.head.table.weight.t())
    base = model_of({**row, "m_d": 1, "m_L": 1})
    stds = [
        torch.stack([each.input.weight.std() for each in model.encoder.feed_forwards]).mean()
        for model in (model, base)
    ]
    golden = row["initial_std_of_matrices_inside_layers"] / GOLDEN["config"]["base_initial_std"]
    assert (stds[0] / stds[1]).item() == pytest.approx(golden, rel=0.03)
