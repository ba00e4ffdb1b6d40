"""`deepwire analyze` as a user types it, on a small run on real text."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from deepwire.cli.main import main
from deepwire.lab import report

EXAMPLES = Path(__file__).parents[2] / "examples" / "multi30k"
RUN_FILE = """
run: run
data: {source: de, target: en, train: train, valid: valid, test: valid, vocabulary: {type: bpe, size: 500}}
model:
  d_model: 16
  heads: 2
  feed_forward: 32
  encoder: {layers: 3, connection: depth_lstm, aggregation: dlcl}
  decoder: {layers: 2, fusion: {type: groups, size: 1}}
training:
  max_updates: 6
  batch_tokens: 300
  device: cpu
  validation: {every: 3}
  record: {gradients: 2, depth_weights: 1}
"""
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a little text of Multi30k and a finished run on it."""
    folder = tmp_path_factory.mktemp("analyze")
    for language in ("de", "en"):
        lines = (
            gzip.decompress((EXAMPLES / f"val.{language}.gz").read_bytes()).decode().splitlines(keepends=True)
        )
        (folder / f"train.{language}").write_text("".join(lines[40:240]), encoding="utf-8")
        (folder / f"valid.{language}").write_text("".join(lines[:40]), encoding="utf-8")
    (folder / "run.yaml").write_text(RUN_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "run.yaml", "--quiet"]) == 0
    return folder


@pytest.fixture
def analyze(folder: Path, monkeypatch: pytest.MonkeyPatch, command) -> Command:
    """Exit code, output and errors of `deepwire analyze ...` in the folder of the run."""
    monkeypatch.chdir(folder)
    return lambda *arguments: command("analyze", *arguments)


def test_every_analysis_prints_text_and_json(analyze: Command) -> None:
    for what, words in (
        ("weights", "Probability weights"),
        ("gates", "how far back a cell reaches"),
        ("gradients", "gradient norm"),
        ("signal", "what each sub-layer reads and gives"),
    ):
        code, text, errors = analyze(what, "run")
        assert (code, errors) == (0, "")
        assert words.lower() in text.lower()
        code, line, _ = analyze(what, "run", "--json")
        assert code == 0
        assert line.count("\n") == 1
        assert json.loads(line)["findings"][0]["analysis"] == what


@needs_matplotlib
def test_a_report_holds_all_of_two_models(
    analyze: Command, tmp_path: Path, open_in_browser: Callable[[Path], str]
) -> None:
    page = tmp_path / "page.html"
    code, text, errors = analyze("report", "run", "run@update-3", "--html", str(page))
    assert code == 0, errors
    titles = re.findall(r"<h2[^>]*>(.*?)</h2>", page.read_text())
    assert titles == [
        "Connection weights of run",
        "Gates of run",
        "Gradients by layer of run",
        "Connection weights of run@update-3",
        "Gates of run@update-3",
        "Gradients by layer of run@update-3",
    ]
    assert all(title in text for title in titles)
    assert "Gradients by layer of run" in open_in_browser(page)


@needs_matplotlib
@pytest.mark.parametrize(
    ("arguments", "figures"),
    [
        ("speed run --mode training --base 2,1,3 --batch 1,2 --length= --depth= --rounds 1", 1),
        *(
            pytest.param(arguments, figures, marks=pytest.mark.slow)
            for arguments, figures in (
                ("agreement run -s valid.de -r valid.en -c wrong.en --sample 8", 0),
                ("compare run run@update-3", 1),
                ("depth run --sentences 4", 1),
                ("linearise run --sentences 4 --updates 2 --update-tokens 200", 1),
                ("length run --sentences 8 --rounds 1", 2),
            )
        ),
    ],
)
def test_a_browser_shows_the_page_of_every_analysis(
    analyze: Command,
    folder: Path,
    tmp_path: Path,
    open_in_browser: Callable[[Path], str],
    arguments: str,
    figures: int,
) -> None:
    """With its tables and as many figures as it promises, and nothing to complain of."""
    english = (folder / "train.en").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "wrong.en").write_text("".join(english[:40]), encoding="utf-8")
    page = tmp_path / "page.html"
    code, _, errors = analyze(*arguments.split(), "--html", str(page))
    assert code == 0, errors
    shown = open_in_browser(page)
    assert shown.count("<img") >= figures
    assert "<table" in shown


def test_a_model_that_is_not_there_is_found_before_the_others_are_measured(
    analyze: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepwire.cli.analyses.internals.open_scorers", lambda *_: pytest.fail("measured"))
    code, _, errors = analyze("depth", "run", "nope")
    assert code == 4
    assert "nope" in errors


def test_without_matplotlib_only_plots_are_refused(
    analyze: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    assert analyze("weights", "run")[0] == 0
    code, text, errors = analyze("weights", "run", "--plots", str(tmp_path / "plots"))
    assert (code, text) == (2, "")
    assert errors.count("\n") == 2
    assert "pip install 'deepwire[analysis]'" in errors


def test_mistakes_are_one_line(folder: Path, refused, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    for arguments, code, words in (
        (["weights", "nowhere"], 4, "no such model"),
        (["speed", "run", "--depth", "0"], 2, "'0' is no list of numbers from 1"),
        (["weights", "run", "--output", str(tmp_path / "no" / "f.txt")], 2, "does not exist"),
        (
            ["gates", "run", "-s", "valid.de", "-r", "valid.en", "--output", "./valid.en"],
            2,
            "is read, and",
        ),
        (["gates", "run", "--output", "valid.de"], 2, "is read, and"),
        (["compare", "run", "run@last", "--html", "valid.en"], 2, "is read, and"),
        (["compare", "run", "run", "--no-translation", "-s", "valid.de"], 2, "--source is for translating"),
        (["weights", "run", "--html", "no.html", "--output", "./no.html"], 2, "are both no.html"),
    ):
        refused(code, words, "analyze", *arguments)
