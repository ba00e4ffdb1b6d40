"""Averages, frozen parameters, R-Drop and a beginning from another model, in two processes as in one."""

from __future__ import annotations

import pytest
import torch
from job_of_processes import EXACT, UPDATES, Launcher
from safetensors.torch import load_file

from deepwire.training import compilation

FEATURES = (
    "training.ema.decay=0.8",
    "training.freeze=[decoder.mixers.*]",
    "training.r_drop=2",
    "model.dropout=1e-9",  # R-Drop asks for some; so little never drops a number
    "training.validation.metrics=[chrf, ter]",
)


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    launcher = Launcher(tmp_path_factory.mktemp("features"))
    assert launcher.train("first", 1, *EXACT) == [0], launcher.text()
    return launcher


def begin(launcher: Launcher) -> str:
    return f"training.start_from={launcher.run_directory('first').path}"


@pytest.fixture(scope="module")
def one(launcher: Launcher) -> str:
    assert launcher.train("one", 1, *EXACT, *FEATURES, begin(launcher)) == [0], launcher.text()
    return "one"


@pytest.mark.parametrize(
    ("sharding", "compiled"),
    [("none", False), *(pytest.param("full", each, marks=pytest.mark.slow) for each in (False, True))],
)
def test_two_processes_give_the_numbers_of_one(
    launcher: Launcher, one: str, sharding: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "BACKEND", "aot_eager")  # kernels would take minutes to make
    settings = (*EXACT, *FEATURES, begin(launcher), f"training.sharding={sharding}")
    settings += ("training.compile=true",) if compiled else ()
    run = f"{sharding}-{compiled}"
    # Half of it, and the rest after the averages have been read again.
    for limit in (UPDATES // 2, UPDATES):
        assert launcher.train(run, 2, *settings, f"training.max_updates={limit}") == [0, 0], launcher.text()
    ours, theirs = (launcher.outcome(name)[0] for name in (run, one))
    assert ours[-1].keys() >= {"chrf", "ter"}
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for key, value in mine.items():
            wanted = pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value
            assert other[key] == wanted, key
    for file in ("model", "optimizer"):
        mine, other = (
            load_file(launcher.run_directory(name).checkpoint_path(UPDATES) / f"{file}.safetensors")
            for name in (run, one)
        )
        assert mine.keys() == other.keys()
        assert all(torch.allclose(mine[key], other[key], rtol=1e-3, atol=1e-5) for key in mine)
    assert any(key.startswith("weights.") for key in mine)
    assert "run as they are" not in launcher.run_directory(run).log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_connections_begin_alike_in_two_processes(launcher: Launcher, sharding: str) -> None:
    """Those that profile the first batch or follow the updates, also when the run is continued."""
    connections = (
        "model.encoder.connection=admin",
        "model.decoder.connection={type: branch_norm, updates: 100}",
    )
    if not launcher.run_directory("depth").path.exists():
        assert launcher.train("depth", 1, *EXACT, *connections) == [0], launcher.text()
    name, settings = f"depth-{sharding}", (*EXACT, *connections, f"training.sharding={sharding}")
    for limit in (UPDATES // 2, UPDATES):
        assert launcher.train(name, 2, *settings, f"training.max_updates={limit}") == [0, 0], launcher.text()
    mine, other = launcher.weights(name), launcher.weights("depth")
    assert mine.keys() == other.keys()
    assert mine["state.decoder.connection.factor"].item() == pytest.approx(UPDATES / 100)
    assert all(torch.allclose(mine[key], other[key], rtol=1e-3, atol=1e-5) for key in mine)
    # All have the factor of the model that a run begins with; another one would let their weights part.
    begin = f"training.start_from={launcher.run_directory('depth').path}"
    assert launcher.train(f"{name}-next", 2, *settings, begin, "training.max_updates=2") == [0, 0], (
        launcher.text()
    )


@pytest.mark.slow
def test_parameters_of_one_number_are_whole_in_each_process(launcher: Launcher) -> None:
    """Hyper-connections have some, which cannot be cut into parts."""
    hyper = (
        "model.encoder.connection=hyper",
        "model.decoder.connection=hyper",
        "training.clip_norm=0.5",
        "training.optimizer={type: adam, eps: 0.01}",  # gradients that are nearly 0 stay so
    )
    assert launcher.train("hyper", 1, *EXACT, *hyper) == [0], launcher.text()
    for limit in (UPDATES // 2, UPDATES):
        settings = (*EXACT, *hyper, "training.sharding=full", f"training.max_updates={limit}")
        assert launcher.train("hyper-full", 2, *settings) == [0, 0], launcher.text()
    mine, other = launcher.weights("hyper-full"), launcher.weights("hyper")
    assert any(not value.dim() for value in mine.values())
    assert all(torch.allclose(mine[key], other[key], rtol=1e-3, atol=1e-5) for key in mine)


LEVERS = (
    "training.sim_cut={alpha: 1, p_cut: 1.0e-9}",  # so little never cuts a word
    "training.layer_drop={encoder: 0.5, decoder: 0.5}",
    "model.encoder.layers=3",
    "model.decoder.layers=2",
)


@pytest.mark.parametrize(
    ("sharding", "optimizer"), [pytest.param("full", "adam", marks=pytest.mark.slow), ("none", "muon")]
)
def test_two_processes_drop_the_layers_of_one(launcher: Launcher, sharding: str, optimizer: str) -> None:
    one, two = f"one-{optimizer}", f"two-{optimizer}"
    settings = (*EXACT, *LEVERS, f"training.optimizer={optimizer}")
    assert launcher.train(one, 1, *settings) == [0], launcher.text()
    for limit in (UPDATES // 2, UPDATES):
        parts = (f"training.sharding={sharding}", f"training.max_updates={limit}")
        assert launcher.train(two, 2, *settings, *parts) == [0, 0], launcher.text()
    mine, other = launcher.weights(two), launcher.weights(one)
    assert all(torch.allclose(mine[key], other[key], rtol=1e-3, atol=1e-5) for key in mine)


def test_a_dry_run_in_two_processes(launcher: Launcher) -> None:
    assert launcher.train("dry", 2, "--dry-run") == [0, 0], launcher.text()
    assert launcher.text().count("target tokens/s") == 1
    assert "2 processes on cpu" in launcher.text()
    assert not launcher.run_directory("dry").path.exists()
