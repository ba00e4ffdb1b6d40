from __future__ import annotations

from pathlib import Path

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.testing import small_model
from deepwire.training.log import DepthRecords, RecordConfig, read_records


def test_a_model_without_weights_of_layers_leaves_no_records(tmp_path: Path) -> None:
    """Its run file may inherit the wish."""
    run = RunDirectory(tmp_path)
    with DepthRecords(run, RecordConfig(depth_weights=2)) as records:
        records.weights(2, small_model({"encoder": {"connection": "frac"}}))
        for update in (3, 4):
            records.weights(update, small_model({"encoder": {"aggregation": "dwa"}}))
    (written,) = read_records(run.depth_weights)
    assert {*written} == {"update", "encoder.dwa"}
    assert written["update"] == 4
