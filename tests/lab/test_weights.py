from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from small_runs import ModelMaker, Store

from deepwire.lab.finding import Figure, Finding
from deepwire.lab.weights import analyse_weights


def figures(finding: Finding) -> dict[str, Figure]:
    return {figure.name: figure for figure in finding.figures}


def bars(finding: Finding, name: str) -> dict[str, float | None]:
    """Values of a chart with one series, by category."""
    figure = figures(finding)[name]
    return dict(zip(figure.categories, figure.series[0].y, strict=True))


def test_a_known_matrix_of_dlcl_is_shown(make_model: ModelMaker, store: Store) -> None:
    model = make_model({"aggregation": "dlcl"})
    known = [[2.0, 9, 9, 9], [0.05, -0.3, 9, 9], [3.0, 0.14, 0.16, 9], [0.1, 0.2, 0.09, -0.5]]
    with torch.no_grad():
        model.encoder.aggregation.mix.copy_(torch.tensor(known).unsqueeze(-1))
    found = analyse_weights(store(model))
    matrix = figures(found)["encoder-dlcl"]
    assert matrix.rows == ("x1", "x2", "x3", "x4")
    assert matrix.columns == ("y0", "y1", "y2", "y3")
    values = [[None if column > row else known[row][column] for column in range(4)] for row in range(4)]
    assert [list(row) for row in matrix.values] == [pytest.approx(row) for row in values]


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
    assert matrix.columns == ("block input", "output 1", "output 2")
    assert matrix.values == ((None, 0.0, 5.0), (2.0, 0.0, 0.0))
    assert bars(found, "decoder-mlrf") == pytest.approx({"0": 0.0, "1": 0.0, "2": 13.0})


def test_records_show_the_weights_over_training(make_model: ModelMaker, store: Store, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    written = store(make_model({"fusion": {"type": "groups", "size": 2}}), "update-20", update=20)
    shutil.move(written, run / "checkpoints" / "update-000020")
    rows = [{"update": update, "encoder.group-gates": [[update / 100, None]]} for update in (10, 20)]
    file = run / "depth_weights.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"upd')  # a run under way
    curves = figures(analyse_weights(f"{run}@last"))["encoder-group-gates-over-training"]
    assert [(one.name, one.x, one.y) for one in curves.series] == [
        ("1", (10, 20), (0.1, 0.2)),
        ("2", (10, 20), (None, None)),
    ]
