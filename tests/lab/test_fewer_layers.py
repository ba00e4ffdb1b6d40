"""Models without their top layers, groups alone."""

from __future__ import annotations

import pytest
import torch

from deepwire.errors import UsageError
from deepwire.lab.layers import with_layers
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

SOCKETS = [
    {"connection": "pre_norm"},
    {"connection": "post_norm"},
    {"connection": "depth_lstm"},
    {"connection": "rezero"},
    {"connection": "pre_norm", "aggregation": "dlcl"},
    {"connection": "post_norm", "fusion": {"type": "groups", "size": 1}},
]


def shallow(model, side: str, layers: int):
    """A model built with so many layers, its parameters cut out of those of the deep one."""
    values = model.config.model_dump()
    values[side]["layers"] = layers
    made = build_model(
        ModelConfig.model_validate(values), model.source_vocabulary, model.target_vocabulary
    ).eval()
    deep = model.state_dict()
    cut = {
        name: deep[name][tuple(slice(0, size) for size in value.shape)]
        for name, value in made.state_dict().items()
    }
    made.load_state_dict(cut)
    return made


@pytest.mark.parametrize("sockets", SOCKETS, ids=lambda sockets: "-".join(map(str, sockets.values())))
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_fewer_layers_are_the_model_that_was_built_with_fewer(make_model, sockets, side) -> None:
    model = make_model({**sockets, "layers": 3}, {**sockets, "layers": 3}).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    source, target = torch.randint(4, 12, (2, 3, 6))
    for layers in (1, 2, 3):
        found = with_layers(model, side, layers).log_probs(source, target)
        wanted = shallow(model, side, layers).log_probs(source, target)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_transparent_attention_gives_its_shares_to_what_is_left(make_model) -> None:
    model = make_model({"connection": "post_norm", "fusion": "transparent"}).eval()
    with torch.no_grad():
        model.encoder.fusion.weights.normal_()
    lower = with_layers(model, "encoder", 1)
    shares = lower.encoder.fusion.shares()
    assert shares.shape == (2, 2)
    torch.testing.assert_close(shares.sum(0), torch.ones(2))
    whole = model.encoder.fusion.shares()[:2]
    torch.testing.assert_close(shares, whole / whole.sum(0))


def test_layers_that_run_in_rounds_cannot_be_left_out(make_model) -> None:
    """The coda would have run in their place."""
    model = make_model({"layers": 4, "recurrence": {"prelude": 1, "coda": 1, "rounds": 2}})
    with pytest.raises(
        UsageError, match="layers of the encoder cannot be left out: its middle layers run in"
    ):
        with_layers(model, "encoder", 3)
    assert with_layers(model, "encoder", 4) is model


def test_command_leaves_out_layers_and_groups(run: str, analyze) -> None:
    layers, groups = analyze("depth", run, "--sentences", "6", "--device", "cpu")["tables"]
    assert [row[:3] for row in layers["rows"]] == [
        ["encoder", 1, 1],
        ["encoder", 2, 0],
        ["decoder", 1, 1],
        ["decoder", 2, 0],
    ]
    assert [row[0] for row in groups["rows"]] == ["1", "2", "1:2"]
    assert groups["rows"][2][1] == pytest.approx(1.0)
    # The whole model, whichever way; and one decoder layer is its first group.
    assert layers["rows"][1][3] == layers["rows"][3][3] == groups["rows"][2][2]
    assert layers["rows"][2][3] == groups["rows"][0][2]
