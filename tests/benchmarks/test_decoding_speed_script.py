"""The comparison of decoding speed: the model handed over, and the script without peers."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import decoding_speed
import pytest
import torch

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel

D, HEADS, WORDS = 16, 4, 30


def model_of_words() -> TranslationModel:
    torch.manual_seed(1)
    small = {"d_model": D, "heads": HEADS, "feed_forward": 24}
    stacks = {side: {"layers": 2} for side in ("encoder", "decoder")}
    return build_model(ModelConfig.model_validate({**small, **stacks}), WORDS, WORDS).eval()


def test_a_model_is_handed_over(monkeypatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The peer's script translates the model that is written here."""
    model = model_of_words()
    decoding_speed.end_late(model)
    decoding_speed.hand_over(model, tmp_path / "exported")
    source, setting = [[5, 6, 2], [7, 2]], {"beam": 1, "batch": 2}
    limits = {"length_penalty": 0, "longest": 6, "shortest": 6}
    job = {"model": str(tmp_path / "exported"), "source": source, "settings": [setting], **limits}
    job |= {"compute_type": "float32", "inter_threads": 1, "threads": 1}
    (tmp_path / "job.json").write_text(json.dumps(job))
    script = Path(decoding_speed.__file__).parent / "peers" / "inside" / "ctranslate2_run.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "job.json")])
    runpy.run_path(str(script), run_name="__main__")
    (found,) = json.loads(capsys.readouterr().out)["results"]
    assert found["translations"] == decoding_speed.translate(model, source, setting, 6)


def test_the_script_writes_a_table_of_every_setting(monkeypatch, tmp_path: Path) -> None:
    small = ("model.d_model=16", "model.heads=2", "model.feed_forward=16")
    layers = ("model.encoder.layers=1", "model.decoder.layers=1")
    options = ("--vocabulary-size", "40", "--length", "4", "--sentences", "3", "--rounds", "1")
    where = ("--threads", "1", "--peers", str(tmp_path / "none"), "--results", str(tmp_path / "results"))
    batches = ("--beam", "2", "1", "--batch", "1", "3", "--formats", "fp32")
    monkeypatch.setattr(
        sys, "argv", ["decoding_speed.py", *options, *where, *batches, "--set", *small, *layers]
    )
    decoding_speed.main()
    (figures,) = (tmp_path / "results").glob("*.json")
    record = json.loads(figures.read_text())
    own = [each for each in record["rounds"] if each["toolkit"] == "deepwire fp32"]
    assert [(each["beam"], each["batch"]) for each in own] == [(2, 1), (2, 3), (1, 1), (1, 3)]
    assert all(each["seconds"] > 0 for each in own)
    (table,) = (tmp_path / "results").glob("*.md")
    assert table.read_text().count("| deepwire fp32 |") == 4


def test_every_format_that_pays_here_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """The work of the processes that the script starts for each format, in this one."""
    first, *others = decoding_speed.formats()
    assert first == "fp32"
    small = ("d_model=16", "heads=2", "feed_forward=16", "encoder.layers=1", "decoder.layers=1")
    origin: dict[str, str | int | list[str]] = {
        "recipe": "papers/neutron-base",
        "set": [f"model.{each}" for each in small],
        "vocabulary": 40,
    }
    job: decoding_speed.Job = {
        "origin": origin,
        "model": "",
        "source": [[5, 6, 2], [7, 2]],
        "settings": [{"beam": 2, "batch": 1}, {"beam": 1, "batch": 2}],
        "threads": 1,
        "length_penalty": 0.0,
        "shortest": 4,
        "longest": 4,
        "shortlist": 0,
    }
    few: decoding_speed.Job = {**job, "shortlist": 12}
    for name, each_job in [("fp32", few), *((name, job) for name in others)]:
        decoding_speed.work(each_job, name)
        results = json.loads(capsys.readouterr().out)["results"]
        assert [(each["beam"], each["batch"]) for each in results] == [(2, 1), (1, 2)]
        assert all(len(ids) == 4 for each in results for ids in each["translations"])
