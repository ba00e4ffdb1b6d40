"""Routing by agreement against other authors' operators: outputs and gradients."""

from __future__ import annotations

from dataclasses import replace

import torch
from golden_names import GRADIENT_TOLERANCE, OUTPUT_TOLERANCE, case, deviation
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.fusions.routing import DynamicRouting, DynamicRoutingConfig, EMRouting, EMRoutingConfig
from deepwire.ops.routing import dynamic_routing


def check(found: Tensor, name: str, wanted: Tensor) -> None:
    tolerance = GRADIENT_TOLERANCE if name.startswith("gradient") else OUTPUT_TOLERANCE
    assert deviation(found, wanted) < tolerance, name


def test_em_routing_in_the_normalised_form() -> None:
    """Means, routing and every gradient; that of the input activations is all but zero in this form."""
    golden = case("em_routing")
    votes = golden["in/votes"].clone().requires_grad_()
    activation = golden["in/activation"].clone().requires_grad_()
    routing = EMRouting(EMRoutingConfig(iterations=3, inverse_temperature=0.01, form="normalised"), 3)
    with torch.no_grad():
        routing.beta_u.copy_(golden.params["beta_u"])
        routing.beta_a.copy_(golden.params["beta_a"])
    found = routing(votes, activation.unsqueeze(1).expand(-1, votes.size(1), -1))
    check(found.mean, "mean", golden["out/result"])
    check(found.routing, "routing", golden["out/routing"])
    (found.mean * golden["cot/result"]).sum().backward()
    assert votes.grad is not None
    assert activation.grad is not None
    assert routing.beta_u.grad is not None
    assert routing.beta_a.grad is not None
    check(votes.grad, "gradient of the votes", golden["grad/in/votes"])
    check(activation.grad, "gradient of the activations", golden["grad/in/activation"])
    check(routing.beta_u.grad, "gradient of beta_u", golden.grads["beta_u"])
    check(routing.beta_a.grad, "gradient of beta_a", golden.grads["beta_a"])


def test_dynamic_routing() -> None:
    """Votes and routing of the fusion, whose width is that of all output capsules together."""
    golden = case("dynamic_routing")
    capsules = golden["in/capsules"].clone().requires_grad_()  # [row, 4, 8]
    weights = golden.params["W"]  # [4, 3, 8, 5]
    contexts = ModelConfig.model_validate({"d_model": 16, "heads": 2}).specs()
    context = replace(contexts["encoder"], layers=4, dim=15)
    fusion = DynamicRoutingConfig(capsules=3).build(context)
    assert isinstance(fusion, DynamicRouting)
    for number in range(4):
        vote = torch.nn.Linear(8, 15, bias=False)
        with torch.no_grad():
            vote.weight.copy_(weights[number].transpose(1, 2).reshape(15, 8))
        fusion.votes[number] = vote
    found = fusion.route(fusion.vote(capsules), capsules)
    check(found, "result", golden["out/result"])
    (found * golden["cot/result"]).sum().backward()
    assert capsules.grad is not None
    check(capsules.grad, "gradient of the capsules", golden["grad/in/capsules"])
    for number in range(4):
        gradient = fusion.votes[number].get_parameter("weight").grad
        assert gradient is not None
        expected = golden.grads["W"][number].transpose(1, 2).reshape(15, 8)
        check(gradient, f"gradient of W_{number}", expected)
    once = dynamic_routing(fusion.vote(capsules), 1)
    assert deviation(once, golden["out/result"]) > 1e-2  # the iterations matter
