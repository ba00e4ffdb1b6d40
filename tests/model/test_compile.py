"""torch.compile takes the model whole: no graph break, and the same numbers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from deepwire.testing import batch, small_model, targets

Stacks = tuple[Mapping[str, object], Mapping[str, object]]


def both(**stack: object) -> Stacks:
    """The same choices for encoder and decoder."""
    return stack, stack


SYSTEMS: Mapping[str, Stacks] = {
    "post_norm": both(connection="post_norm"),
    "depth_lstm": both(connection="depth_lstm"),
    "dlcl": both(aggregation="dlcl"),
    "gtrans": both(connection="post_norm", fusion={"type": "groups", "size": 1}),
    "mhplstm": ({}, {"mixer": "mhplstm"}),
    "average_attention": ({}, {"mixer": "average_attention"}),
}
# A second layer runs the code of the first and no other.
ALIKE_IN_EVERY_LAYER = ("post_norm", "mhplstm", "average_attention")
LANGUAGES = {"norm": True, "transform": "released", "embedding": "both", "output_bias": True}


@pytest.mark.parametrize(
    ("system", "languages"),
    [
        *((system, None) for system in ("post_norm", "depth_lstm", "mhplstm")),
        ("gtrans", LANGUAGES),
        *(
            pytest.param(system, None, marks=pytest.mark.slow)
            for system in ("dlcl", "gtrans", "average_attention")
        ),
        *(
            pytest.param(system, LANGUAGES, marks=pytest.mark.slow)
            for system in ("post_norm", "depth_lstm", "mhplstm")
        ),
    ],
)
def test_the_training_step_compiles_without_a_graph_break(
    system: str, languages: Mapping[str, object] | None
) -> None:
    """`fullgraph` raises at the first break; loss and gradients equal those of the plain model.

    The backend runs the graph as it was traced: what later stages make of it is not looked at here.
    """
    torch._dynamo.reset()
    layers = 1 if system in ALIKE_IN_EVERY_LAYER else 2
    encoder, decoder = ({"layers": layers, **stack} for stack in SYSTEMS[system])
    settings: dict[str, object] = {"encoder": encoder, "decoder": decoder}
    if languages is not None and system == "gtrans":
        languages = {**languages, "fusion": "both"}
    model = small_model(settings if languages is None else {**settings, "languages": languages}).train()
    spoken = targets(model)
    plain = model.loss(*batch(), 0.1, languages=spoken)
    expected = torch.autograd.grad(plain.smoothed, list(model.parameters()))
    step = torch.compile(model.loss, backend="eager", fullgraph=True)
    compiled = step(*batch(), 0.1, languages=spoken)
    found = torch.autograd.grad(compiled.smoothed, list(model.parameters()))
    torch.testing.assert_close(tuple(compiled), tuple(plain))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
