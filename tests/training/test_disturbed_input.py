"""SimCut and input noise in whole runs: what is logged, exact continuation, what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from toy_run import run_training

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.training.config import TrainingConfig
from deepwire.training.spec import TrainingSpec

JobMaker = Callable[..., TrainingSpec]
ReadRecords = Callable[..., list[dict[str, object]]]
Digest = Callable[[RunDirectory, int], list[str]]
NOISE = {"source": {"cutoff": 0.1, "unknown": 0.1, "replace": 0.1}, "target": 0.1}
SETTINGS: list[dict[str, object]] = [
    {"input_noise": NOISE},
    {"sim_cut": {"alpha": 3, "p_cut": 0.2}, "input_noise": NOISE, "ema": {"decay": 0.9}},
    {"r_drop": 2, "input_noise": NOISE},
]


def test_sim_cut_brings_the_two_passes_together(make_job: JobMaker, read_records: ReadRecords) -> None:
    last = []
    for alpha in (1e-9, 5.0):
        job = make_job(f"alpha{alpha}", max_updates=30, sim_cut={"alpha": alpha, "p_cut": 0.2})
        run_training(job, quiet=True)
        last.append(read_records(job.run, "train")[-1]["sim_cut"])
    assert last[1] < 0.7 * last[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sim_cut": 1, "r_drop": 1}, "r_drop and sim_cut exclude each other"),
        ({"sim_cut": 1, "compile": True}, "compile and sim_cut exclude each other"),
        ({"input_noise": {"source": 0.1}, "compile": True}, "compile and input_noise exclude each other"),
        ({"sim_cut": 0}, "weight alpha, above 0, not 0"),
        ({"input_noise": {"target": 2}}, "probability of a cutoff"),
        ({"sim_cut": {"p_cut": 1}}, "less than 1"),
        ({"input_noise": {"source": {"cutoff": 0.6, "unknown": 0.4}}}, "are 1 together"),
        ({"input_noise": {"source": True}}, "source"),
        ({"sim_cut": {"stop_gradient": "both"}}, "'none', 'plain' or 'cut'"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TrainingConfig.model_validate(settings)
