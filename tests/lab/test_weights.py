from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from deepwire.errors import UsageError
from deepwire.lab.finding import BarChart, Figure, Finding, HeatMap, LineChart
from deepwire.lab.weights import analyse_weights, blank_cells
from deepwire.model.stack_spec import SIDES
from deepwire.model.translation_model import TranslationModel

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))
from choices import choices

ModelMaker = Callable[..., TranslationModel]
Store = Callable[..., str]


def figures(finding: Finding) -> dict[str, Figure]:
    return {figure.name: figure for figure in finding.figures}


def bars(finding: Finding, name: str) -> dict[str, float | None]:
    """Values of a chart with one series, by category."""
    figure = figures(finding)[name]
    assert isinstance(figure, BarChart)
    return dict(zip(figure.categories, figure.series[0].y, strict=True))


def test_a_known_matrix_of_dlcl_is_shown_with_the_blanks_of_the_paper(
    make_model: ModelMaker, store: Store
) -> None:
    model = make_model({"aggregation": "dlcl"})
    known = [[2.0, 9, 9, 9], [0.05, -0.3, 9, 9], [3.0, 0.14, 0.16, 9], [0.1, 0.2, 0.09, -0.5]]
    with torch.no_grad():
        model.encoder.aggregation.mix.copy_(torch.tensor(known).unsqueeze(-1))
    found = analyse_weights(store(model))
    matrix = figures(found)["encoder-dlcl"]
    assert isinstance(matrix, HeatMap)
    assert matrix.rows == ("x1", "x2", "x3", "x4")
    assert matrix.columns == ("y0", "y1", "y2", "y3")
    values = [[None if column > row else known[row][column] for column in range(4)] for row in range(4)]
    assert [list(row) for row in matrix.values] == [pytest.approx(row) for row in values]
    # Blank below 0.1, and below 5 % of the row's largest: 0.14 < 0.05 * 3 < 0.16.
    drawn = [[value is not None for value in row] for row in matrix.drawn()]
    assert drawn == [
        [True, False, False, False],
        [False, True, False, False],
        [True, False, True, False],
        [True, True, False, True],
    ]
    whole = figures(analyse_weights(found.provenance.models[0].folder, blank=False))["encoder-dlcl"]
    assert isinstance(whole, HeatMap)
    assert whole.drawn() == matrix.values
    # The column of y1, from x2 on, which is the first that can read it.
    assert bars(found, "encoder-dlcl-successors") == pytest.approx({"x2": -0.3, "x3": 0.14, "x4": 0.2})
    other = bars(analyse_weights(found.provenance.models[0].folder, layer=0), "encoder-dlcl-successors")
    assert other == pytest.approx({"x1": 2.0, "x2": 0.05, "x3": 3.0, "x4": 0.1})
    with pytest.raises(UsageError, match="the encoder has layers 1 to 3, and no layer 4"):
        analyse_weights(found.provenance.models[0].folder, layer=4)


def test_the_rule_of_the_paper() -> None:
    assert blank_cells([0.1, -0.099, 1.9]) == [False, True, False]
    assert blank_cells([0.1, -4.0, 0.2]) == [True, False, False]
    assert blank_cells([math.nan, 0.0]) == [False, True]


def test_groups_show_the_three_kinds_of_weights(make_model: ModelMaker, store: Store) -> None:
    groups = {"type": "groups", "size": 2}
    model = make_model({"fusion": groups}, {"layers": 4, "fusion": groups})
    with torch.no_grad():
        model.encoder.fusion.gates.copy_(torch.tensor([0.0, math.log(3)]))
        model.decoder.fusion.layer_gates.copy_(torch.tensor([0.0, math.log(3), 0.0, -math.log(3)]))
        model.decoder.fusion.weights.copy_(torch.tensor([0.0, 4 * math.log(3)]))  # temperature sqrt(16)
    found = analyse_weights(store(model))
    assert bars(found, "encoder-group-gates") == pytest.approx({"1": 0.5, "2": 0.75})
    assert bars(found, "decoder-layer-gates") == pytest.approx(
        {"1 (group 1)": 0.5, "2 (group 1)": 0.75, "3 (group 2)": 0.5, "4 (group 2)": 0.25}
    )
    assert bars(found, "decoder-probability-weights") == pytest.approx({"1": 0.25, "2": 0.75})


def test_norms_of_maps_from_layers(make_model: ModelMaker, store: Store) -> None:
    model = make_model(
        {"layers": 4, "aggregation": "hierarchical", "connection": {"type": "pre_norm", "final_norm": False}},
        {"fusion": {"type": "mlrf", "form": "feed_forward", "hidden": 8}},
    )
    with torch.no_grad():
        for combiner in model.encoder.aggregation.combiners:
            combiner.input.weight.zero_()
        model.encoder.aggregation.combiners[0].input.weight[0, 16:18] = torch.tensor([3.0, 4.0])
        model.encoder.aggregation.combiners[1].input.weight[0, 0] = 2.0
        model.decoder.fusion.input.weight.zero_()
        model.decoder.fusion.input.weight[1, 32:34] = torch.tensor([5.0, 12.0])
    found = analyse_weights(store(model))
    matrix = figures(found)["encoder-combiner"]
    assert isinstance(matrix, HeatMap)
    assert matrix.columns == ("block input", "output 1", "output 2")
    assert matrix.values == ((None, 0.0, 5.0), (2.0, 0.0, 0.0))
    assert bars(found, "decoder-mlrf") == pytest.approx({"0": 0.0, "1": 0.0, "2": 13.0})


@pytest.mark.parametrize("socket", ["connection", "aggregation", "fusion"])
def test_weights_of_every_choice_can_be_shown(make_model: ModelMaker, store: Store, socket: str) -> None:
    seen: set[str] = set()
    for side, other_side in (SIDES, SIDES[::-1]):
        for choice in choices(socket, side):
            chosen = {socket: choice, **({"mixer": "ln_lstm"} if choice["type"] == "rnmt" else {})}
            other = chosen if choice["type"] == "collaboration" else {}
            stacks = {side: chosen, other_side: other}
            try:
                model = make_model(stacks["encoder"], stacks["decoder"])
            except ValidationError:
                continue  # what does not fit into so small a model
            keys = {weights.key for weights in model.stacks()[side].depth_weights()}
            if keys - seen:
                names = [figure.name for figure in analyse_weights(store(model, f"with-{len(seen)}")).figures]
                assert {f"{side}-{key}" for key in keys} <= set(names)
                assert len(names) == len(set(names))
            seen |= keys
    assert socket != "connection" or {"layer-scale", "attn-res"} <= seen
    assert seen


@pytest.fixture
def run(make_model: ModelMaker, store: Store, tmp_path: Path) -> Path:
    """A run directory with three checkpoints, whose two encoder groups have gates 0, 1, 2 times (1, -1)."""
    folder = tmp_path / "run"
    for update in (100, 200, 300):
        model = make_model({"fusion": {"type": "groups", "size": 2}})
        with torch.no_grad():
            model.encoder.fusion.gates.copy_(torch.tensor([1.0, -1.0]) * (update / 100 - 1))
        written = store(model, f"update-{update}", update=update)
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        shutil.move(written, folder / "checkpoints" / f"update-{update:06d}")
    return folder


def over_training(finding: Finding) -> LineChart:
    figure = figures(finding)["encoder-group-gates-over-training"]
    assert isinstance(figure, LineChart)
    return figure


def test_checkpoints_show_the_weights_over_training(run: Path) -> None:
    found = analyse_weights(f"{run}@last")
    curves = over_training(found)
    gates = [1 / (1 + math.exp(-step)) for step in (0, 1, 2)]
    assert [one.name for one in curves.series] == ["1", "2"]
    assert curves.series[0].x == (100, 200, 300)
    assert curves.series[0].y == pytest.approx(gates)
    assert curves.series[1].y == pytest.approx([1 - gate for gate in gates])
    assert "3 checkpoints" in found.measured
    assert bars(found, "encoder-group-gates")["1"] == pytest.approx(gates[-1])
    assert found.provenance.models[0].update == 300


def test_records_are_preferred_to_checkpoints(run: Path) -> None:
    rows = [{"update": update, "encoder.group-gates": [[update / 100, None]]} for update in (10, 20)]
    file = run / "depth_weights.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"upd')  # a run under way
    found = analyse_weights(f"{run}@last")
    assert over_training(found).series[0].y == (0.1, 0.2)
    assert over_training(found).series[1].y == (None, None)
    assert "depth_weights.jsonl" in found.measured
