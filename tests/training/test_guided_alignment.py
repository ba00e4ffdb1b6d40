"""Guided alignment: its loss by hand, whole runs, what is refused, and the head that translating uses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from toy_run import records

import deepwire
from deepwire.errors import UsageError
from deepwire.training.device import DeviceBatch
from deepwire.training.extras import GuidedAlignment, GuidedAlignmentConfig

LINES = 120


def text(folder: Path) -> dict[str, Any]:
    """Words of two letters and their reverse: word i is word k - 1 - i of the other side."""
    generator = torch.Generator().manual_seed(1)
    words = [f"{one}{other}" for one in "abcd" for other in "efgh"]
    files: list[list[str]] = [[], [], []]
    for _ in range(LINES):
        count = int(torch.randint(2, 7, (), generator=generator))
        line = [words[int(place)] for place in torch.randint(len(words), (count,), generator=generator)]
        pairs = " ".join(f"{place}-{count - 1 - place}" for place in range(count))
        for file, each in zip(files, (line, line[::-1], [pairs]), strict=True):
            file.append(" ".join(each))
    for name, file in zip(("src", "trg", "align"), files, strict=True):
        (folder / f"train.{name}").write_text("".join(f"{line}\n" for line in file))
    train = {"prefix": str(folder / "train"), "alignments": str(folder / "train.align")}
    vocabulary = {"type": "bpe", "size": 40, "byte_fallback": False}
    return {
        "source": "src",
        "target": "trg",
        "train": train,
        "prepared": str(folder / "prepared"),
        "vocabulary": vocabulary,
    }


def settings(folder: Path, name: str = "run", **training: Any) -> dict[str, Any]:
    stack = {"layers": 2}
    model = {"d_model": 16, "heads": 2, "feed_forward": 32, "encoder": stack, "decoder": stack}
    updates = {"max_updates": 30, "batch_tokens": 150, "device": "cpu", "precision": "fp32", "log_every": 5}
    peak = {"type": "inverse_sqrt", "peak": 0.01, "warmup": 5}
    training = {**updates, "schedule": peak, **training}
    return {"data": text(folder), "model": model, "training": training, "run": str(folder / name)}


class Known:
    """A decoder whose attention is known."""

    def __init__(self, weights: torch.Tensor) -> None:
        self.weights = weights
        self.decoder = SimpleNamespace(recorder=None)
        self.config = SimpleNamespace(decoder=SimpleNamespace(layers=3))


def guide(weights: torch.Tensor, monkeypatch: pytest.MonkeyPatch, **config: Any) -> GuidedAlignment:
    monkeypatch.setattr("deepwire.training.extras._heads", lambda _: dict.fromkeys(range(3), weights.size(1)))
    return GuidedAlignment(GuidedAlignmentConfig(**config), Known(weights))  # type: ignore[arg-type]  # as known


@pytest.mark.parametrize(("step", "shift"), [("writes", 0), ("reads", 1)])
@pytest.mark.parametrize("passes", [1, 2])
def test_the_loss_is_that_of_the_formula(
    step: str, shift: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = torch.rand(2, 2, 4, 3).softmax(-1)
    links = torch.tensor([[0, 0, 1], [0, 1, 0], [0, 1, 2], [1, 2, 2]])
    row = torch.zeros(2, 4, dtype=torch.int64)
    batch = DeviceBatch(row[:, :3], row, row, None, links)
    made = guide(weights, monkeypatch, head=2, step=step)
    with made.during_pass():
        recorder = made._model.decoder.recorder
        assert recorder is not None
        assert recorder.layers == {1}  # the last but one of three
        recorder.weights[1] = torch.cat([weights] * passes)
        found = made.loss(batch)
    a = weights[:, 1].log()
    wanted = a[0, shift, 1] + (a[0, 1 + shift, 0] + a[0, 1 + shift, 2]) / 2 + a[1, 2 + shift, 2]
    assert found is not None
    assert float(found) == pytest.approx(-float(wanted), rel=1e-5)
    # Cut into rows, the sum is the same.
    parts = batch.cut(2)
    assert [part.links.tolist() for part in parts if part.links is not None] == [
        links[:3].tolist(),
        [[0, 2, 2]],
    ]
    with made.during_pass():
        assert made.loss(batch) is None


def test_a_run_learns_alignments_goes_on_exactly_and_translates_with_that_head(tmp_path: Path) -> None:
    from deepwire.checkpoint.run_directory import RunDirectory

    given = settings(tmp_path, guided_alignment=2.0)
    deepwire.train(given)
    found = [record["guided_alignment"] for record in records(RunDirectory(tmp_path / "run"), "train")]
    assert found[-1] < 0.6 * found[0]
    short = settings(tmp_path, "halved", guided_alignment=2.0, max_updates=11)
    deepwire.train(short)
    deepwire.train({**short, "training": {**short["training"], "max_updates": 30}})
    again = records(RunDirectory(tmp_path / "halved"), "train")
    assert again[-1] == records(RunDirectory(tmp_path / "run"), "train")[-1]
    model = deepwire.load(tmp_path / "run")
    chosen = model.config.alignment
    assert (chosen.layer, chosen.head, chosen.step) == (1, 1, "reads")
    plain = settings(tmp_path, "plain", max_updates=1)
    deepwire.train(plain)
    chosen = deepwire.load(tmp_path / "plain").config.alignment
    assert chosen.layer in (1, 2)
    given = {"alignment": {"layer": 2, "head": 1}}
    deepwire.train({**settings(tmp_path, "named", max_updates=1), "decoding": given})
    named = deepwire.load(tmp_path / "named").config.alignment
    assert (named.layer, named.head, named.step) == (2, 1, "reads")
    assert "nothing learns them" in (tmp_path / "plain" / "log.txt").read_text()


def test_activation_checkpointing_changes_nothing(tmp_path: Path) -> None:
    from deepwire.checkpoint.run_directory import RunDirectory

    found = []
    for recompute in (False, True):
        more = {"guided_alignment": 0.5, "activation_checkpointing": recompute, "max_updates": 5}
        deepwire.train(settings(tmp_path, f"run{recompute}", **more))
        last = records(RunDirectory(tmp_path / f"run{recompute}"), "train")[-1]
        found.append((last["guided_alignment"], last["gradient_norm"]))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_head_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="head 3: layer 1 has heads 1 to 2"):
        deepwire.train(settings(tmp_path, guided_alignment={"head": 3}))
