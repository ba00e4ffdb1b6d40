"""Models without their top layers, groups alone, and runs over their depth."""

from __future__ import annotations

import json

import pytest
import torch

from deepwire.cli.main import main
from deepwire.errors import UsageError
from deepwire.lab.depth.depth_of_runs import (
    DepthOfRun,
    curves,
    kinds_of,
    varying_side,
)
from deepwire.lab.depth.fewer_layers import with_layers
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


def test_runs_of_one_kind_are_one_curve_and_seeds_one_point() -> None:
    runs = [
        DepthOfRun("a", "pre_norm", 6, 3, 20.0),
        DepthOfRun("b", "pre_norm", 12, 3, 24.0),
        DepthOfRun("c", "pre_norm", 12, 3, 26.0),
        DepthOfRun("d", "pre_norm dlcl", 12, 3, 27.0),
    ]
    assert varying_side(runs) == "encoder"
    second, first = curves(runs, "encoder")
    assert (first.name, first.x, first.y) == ("pre_norm dlcl, 3 decoder layers", (12,), (27.0,))
    assert (second.x, second.y, second.low, second.high) == (
        (6, 12),
        (20.0, 25.0),
        (20.0, 24.0),
        (20.0, 26.0),
    )


def test_runs_whose_stacks_grow_together_are_one_curve() -> None:
    runs = [DepthOfRun("a", "rezero", 2, 2, 20.0), DepthOfRun("b", "rezero", 4, 4, 24.0)]
    (curve,) = curves(runs, varying_side(runs))
    assert curve.name == "rezero, 2 to 4 decoder layers"
    assert (curve.x, curve.y) == ((2, 4), (20.0, 24.0))
    runs += [DepthOfRun("c", "rezero", 4, 2, 22.0)]
    assert [(curve.name, curve.x) for curve in curves(runs, "encoder")] == [
        ("rezero, 2 decoder layers", (2, 4)),
        ("rezero, 4 decoder layers", (4,)),
    ]


def test_runs_that_differ_in_more_than_depth_are_not_seeds_of_one_another() -> None:
    def model(layers: int, hidden: str) -> ModelConfig:
        stack = {"layers": layers, "connection": {"type": "depth_lstm", "hidden": hidden}}
        return ModelConfig.model_validate({"encoder": stack, "decoder": stack | {"layers": 2}})

    deep, shallow, other = model(6, "glu"), model(2, "glu"), model(2, "one_layer")
    assert kinds_of([deep, shallow]) == ["depth_lstm", "depth_lstm"]
    said = '(decoder.connection.hidden "{0}", encoder.connection.hidden "{0}")'
    assert kinds_of([deep, other]) == [
        f"depth_lstm {said.format('glu')}",
        f"depth_lstm {said.format('one_layer')}",
    ]


def test_command_leaves_out_layers_and_groups(run: str, capsys) -> None:
    assert main(["analyze", "depth", run, f"{run}@last", "--json", "--device", "cpu"]) == 0
    first, _, together = json.loads(capsys.readouterr().out)["findings"]
    layers, groups = first["tables"]
    lines = together["figures"][0]["series"]
    assert [line["name"] for line in lines] == [
        f"{name}, {side} (of 2)" for name in (run, f"{run}@last") for side in ("encoder", "decoder")
    ]
    assert lines[1]["y"] == [row[3] for row in layers["rows"][2:]]
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


def test_command_over_runs(run: str, capsys) -> None:
    assert main(["analyze", "depth", "--runs", run, run, "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"][0]
    assert [row[1:4] for row in found["tables"][0]["rows"]] == [["depth_lstm | depth_lstm groups", 2, 2]] * 2
    assert len(found["figures"][0]["series"]) == 1
