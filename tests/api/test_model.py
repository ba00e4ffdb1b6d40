"""A loaded model and evaluations from Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from reversed_words import SETTINGS

import deepwire
from deepwire.cli.main import main
from deepwire.errors import UsageError

SOURCE = ["a b c", "d e", "", "f f g"]


def test_importing_deepwire_and_naming_its_parts_imports_no_torch() -> None:
    code = "import sys, deepwire; dir(deepwire); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ)).returncode == 0


def test_samples_are_drawn_by_seed_and_not_by_torch(trained: deepwire.Run) -> None:
    model = deepwire.load(trained.path, "cpu", "fp32")
    first = model.sample(SOURCE, 4, temperature=2.0, seed=7)
    torch.manual_seed(99)
    assert model.sample(SOURCE, 4, temperature=2.0, seed=7) == first
    assert model.sample(SOURCE, 4, temperature=2.0, seed=8) != first
    assert [len(each) for each in first] == [4, 4, 1, 4]
    assert len(set(first[0])) > 1
    assert model.translate(SOURCE) == deepwire.load(trained.path, "cpu", "fp32").translate(SOURCE)
    with pytest.raises(UsageError, match="temperature"):
        model.sample(SOURCE, temperature=0)


def test_settings_of_one_call_are_those_that_a_model_is_loaded_with(
    trained: deepwire.Run, tmp_path: Path
) -> None:
    model = deepwire.load(trained, "cpu", "fp32")
    plain = model.translate(SOURCE)
    for settings in ({"beam": 1, "max_length_extra": 1}, {"max_source_length": 2}, {"length_penalty": 3.0}):
        loaded = deepwire.load(trained, "cpu", "fp32", settings=settings)
        assert model.translate(SOURCE, **settings) == loaded.translate(SOURCE)
        assert type(model.with_search(**settings)) is deepwire.Model
    (wide,) = model.with_search(beam=3, n_best=3).translations(["a b c"])
    assert len(wide.candidates) == 3
    assert model.translate(SOURCE, beam=None) == model.translate(SOURCE) == plain
    for value in (2, None):
        with pytest.raises(UsageError, match=r"beem: unknown key \(did you mean beam\?\)"):
            model.translate(SOURCE, beem=value)
    with pytest.raises(UsageError, match="beam: must be at least 1"):
        model.translate(SOURCE, beam=0)
    with pytest.raises(UsageError, match="rounds 2"):
        model.translate(SOURCE, rounds=2)
    terms = tmp_path / "terms.tsv"
    terms.write_text("a\tb\n")
    with pytest.raises(UsageError, match="sampling draws"):
        deepwire.load(trained, terms=terms).sample(SOURCE)


def test_without_the_lab_a_model_says_that_there_are_no_analyses(
    trained: deepwire.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deepwire.lab", None)
    with pytest.raises(UsageError, match="this copy of deepwire has no analyses"):
        deepwire.load(trained).analyze("weights")


def test_a_model_is_analysed_by_name(trained: deepwire.Run) -> None:
    model = deepwire.load(trained)
    finding = model.analyze("weights")
    assert finding.analysis == "weights"
    assert "alpha" in finding.model_dump_json()
    for name in ("depht", ["weights"]):
        with pytest.raises(UsageError, match=re.escape(f"no analysis {name!r} of a loaded model")):
            model.analyze(name)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unexpected keyword argument 'layr'"):
        model.analyze("weights", layr=1)
    with pytest.raises(UsageError, match="has no gates"):
        model.analyze("gates")
    ensemble = deepwire.load([trained, trained])
    with pytest.raises(UsageError, match="an ensemble"):
        ensemble.analyze("weights")


def test_options_of_an_analysis_are_those_of_the_command(trained: deepwire.Run) -> None:
    model = deepwire.load(trained)
    tables = [
        model.analyze("similarity", sentences=3, **options).tables
        for options in (
            {"sides": "encoder"},
            {"sides": ["encoder"]},
            {"sides": "encoder", "direction": "src-trg"},
        )
    ]
    assert [table.title.split(":")[0] for table in tables[0]] == ["Encoder"]
    assert tables[0] == tables[1] == tables[2]


def test_an_evaluation_is_that_of_the_command(
    trained: deepwire.Run, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["evaluate", "--model", str(trained.path), "--metric", "chrf", "--metric", "bleu", "--json"])
        == 0
    )
    told = json.loads(capsys.readouterr().out)["systems"][0]["scores"]
    scores = deepwire.evaluate(trained, metrics=["chrf", "bleu"])
    assert [round(score.value, 9) for score in scores.values()] == [round(one["score"], 9) for one in told]
    assert scores["bleu"].signature.startswith("nrefs:1")
    model = deepwire.load(trained, device="cpu")
    source, reference = corpus / "test.src", corpus / "test.trg"
    own = model.translate(source.read_text().splitlines())
    for system in (model, own):
        assert deepwire.evaluate(system, reference, source=source, metrics="bleu")["bleu"] == scores["bleu"]
    assert deepwire.evaluate(reference, reference)["bleu"].value == pytest.approx(100)
    several = deepwire.evaluate(own, (reference, own), metrics="chrf")
    assert several["chrf"].value == pytest.approx(100)


def test_a_comparison_tests_the_difference(trained: deepwire.Run, corpus: Path) -> None:
    reference = corpus / "test.trg"
    report = deepwire.compare({"trained": trained, "perfect": reference}, samples=50, metrics=["chrf"])
    assert [system.name for system in report.systems] == ["trained", "perfect"]
    (comparison,) = report.systems[1].comparisons
    assert comparison.p_value < 0.1
    with pytest.raises(UsageError, match="two or more systems"):
        deepwire.compare([reference], reference)


def test_parts_for_a_loop_of_ones_own(data: dict[str, object], tmp_path: Path) -> None:
    parts = deepwire.training_parts(SETTINGS, data=data, training={"batch_tokens": 100})
    batches = list(parts.batches(epochs=2))
    pairs = sum(len(batch.source) for batch in batches)
    assert pairs == 2 * len(parts.prepared.train)
    assert max(batch.target_output.numel() for batch in batches) <= 100
    assert sum(len(batch.source) for batch in parts.validation_batches()) == 10
    before = parts.loss(batches[0]).item()
    for number, batch in enumerate(batches, 1):
        parts.optimizer.zero_grad()
        loss = parts.loss(batch)
        loss.backward()
        parts.optimizer.step(parts.schedule(number), loss.detach())
    assert parts.loss(batches[0]).item() < before - 0.1
    for _ in range(2):  # a model takes the place of a model
        parts.save(tmp_path / "mine")
    assert len(deepwire.load(tmp_path / "mine").translate(SOURCE)) == 4
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "train.de").write_text("Ein Hund.\n")
    with pytest.raises(UsageError, match="corpus: exists already and is no model"):
        parts.save(tmp_path / "corpus")
    assert (tmp_path / "corpus" / "train.de").read_text() == "Ein Hund.\n"


def test_a_loaded_model_is_evaluated_with_the_settings_that_were_asked_for(trained: deepwire.Run) -> None:
    model = deepwire.load(trained, "cpu", "fp32")
    lines = ["a b c", "d e", "f f g"]
    for settings in ({"beam": 1, "max_length_extra": 1}, {"max_source_length": 1}):
        reference = model.with_search(**settings).translate(lines)
        assert reference != model.translate(lines)
        scores = deepwire.evaluate(model, reference, source=lines, metrics="chrf", decoding=settings)
        assert scores["chrf"].value == pytest.approx(100)
    with pytest.raises(UsageError, match="beem: unknown key"):
        deepwire.evaluate(model, lines, source=lines, decoding={"beem": 2})


def test_parts_begin_as_training_does(data: dict[str, object], tmp_path: Path) -> None:
    torch.manual_seed(5)
    parts = deepwire.training_parts(SETTINGS, data=data)
    with deepwire.training_session(SETTINGS, data=data, run=str(tmp_path / "run"), quiet=True) as session:
        for mine, theirs in zip(parts.model.parameters(), session.model.parameters(), strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    "disturbed", [{"input_noise": {"source": {"cutoff": 0.5}}}, {"sim_cut": 3}, {"r_drop": 5.0}]
)
def test_nothing_disturbs_the_loss_of_an_evaluated_model(
    data: dict[str, object], disturbed: dict[str, object]
) -> None:
    plain, other = (
        deepwire.training_parts(SETTINGS, data=data, training=training) for training in ({}, disturbed)
    )
    batch = next(other.validation_batches())
    disturbed_losses = [other.loss(batch).item() for _ in range(2)]
    plain.model.eval()
    other.model.eval()
    losses = {plain.loss(batch).item(), *(other.loss(batch).item() for _ in range(2))}
    assert len(losses) == 1
    assert losses.isdisjoint(disturbed_losses)
