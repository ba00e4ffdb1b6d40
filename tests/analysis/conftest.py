"""Tiny models on disk, findings made by hand, and a real browser where there is one."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import torch

from deepwire.analysis.figures import Axis, Bars, HeatMap, Lines, Series
from deepwire.analysis.finding import Finding, ModelSource, provenance
from deepwire.analysis.records import Column, Table
from deepwire.checkpoint.store import save_model
from deepwire.cli.main import main
from deepwire.data.languages import Languages
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translator import TranslationModel
from deepwire.results.runs import RunPlan
from deepwire.results.training import Failure

VOCABULARIES = Vocabularies.learn(
    WordsConfig(joint=True), [Pair(1, "ein hund zwei katzen im haus", "a dog two cats in the house", 0)]
)
ModelMaker = Callable[..., TranslationModel]


def tiny(
    encoder: dict[str, object], decoder: dict[str, object] | None = None, languages: Languages | None = None
) -> TranslationModel:
    """A model of width 16 with these sockets, drawn from a fixed seed; with languages, norms for each."""
    config = ModelConfig.model_validate(
        {
            "d_model": 16,
            "heads": 2,
            "feed_forward": 32,
            "dropout": 0.0,
            "encoder": {"layers": 3, **encoder},
            "decoder": {"layers": 2, **(decoder or {})},
            "languages": {"norm": languages is not None},
        }
    )
    torch.manual_seed(5)
    tags, names = (languages.tags, languages.names) if languages else (0, ())
    sizes = VOCABULARIES.source.size + tags, VOCABULARIES.target.size + tags
    return build_model(config, *sizes, languages=len(names))


@pytest.fixture
def make_model() -> ModelMaker:
    return tiny


@pytest.fixture
def store(tmp_path: Path) -> Callable[[TranslationModel], str]:
    """Writes a model directory and gives its name."""

    def write(model: TranslationModel, name: str = "model", **metadata: object) -> str:
        save_model(tmp_path / name, model, VOCABULARIES, dict(metadata))
        return str(tmp_path / name)

    return write


@pytest.fixture
def text(tmp_path: Path) -> tuple[Path, Path]:
    """Three sentences of different lengths and their translations."""
    (tmp_path / "s").write_text("ein hund\nzwei katzen im haus\nhund\n")
    (tmp_path / "t").write_text("a dog\ntwo cats in the house\ndog\n")
    return tmp_path / "s", tmp_path / "t"


@pytest.fixture
def finding() -> Finding:
    """One of everything, with names that are markup if nobody takes care."""
    return Finding(
        analysis="example",
        title="An <example> & more",
        measured="Numbers made by hand.",
        tables=(
            Table(
                title="Speed",
                columns=(
                    Column(name="model"),
                    Column(name="speed", unit="sentences/s", digits=1),
                    Column(name="count"),
                ),
                rows=(("<script>alert(1)</script>", 12.345, 3), ("b", None, 40)),
            ),
        ),
        figures=(
            Lines(
                name="curves",
                title="Loss over training",
                x=Axis(label="update"),
                y=Axis(label="loss", unit="nats/token"),
                series=(
                    Series(name="a", x=(1, 2, 3), y=(3.0, 2.0, 1.5)),
                    Series(name="b", x=(1, 2), y=(3.0, None), low=(2.5, None), high=(3.5, None)),
                ),
            ),
            Bars(
                name="bars",
                title="Gates",
                x=Axis(label="layer"),
                y=Axis(label="openness"),
                categories=("1", "2"),
                series=(Series(name="input", y=(0.25, 0.5)), Series(name="forget", y=(0.75, 0.5))),
            ),
            HeatMap(
                name="matrix",
                title="Weights",
                row_axis=Axis(label="reader"),
                column_axis=Axis(label="source"),
                value=Axis(label="weight"),
                rows=("x1", "x2"),
                columns=("y0", "y1"),
                values=((1.0, None), (-0.75, 0.0625)),
                hidden=((False, False), (False, True)),
            ),
        ),
        notes=("A note.",),
        provenance=provenance([ModelSource(name="runs/a", folder="runs/a/x", digest="0" * 32, update=7)]),
    )


RUN_FILE = """
data:
  source: de
  target: en
  train: train
  valid: test
  test: test
  vocabulary: {type: bpe, size: 400, joint: true}
model:
  d_model: 16
  heads: 2
  feed_forward: 32
  dropout: 0.0
  encoder: {layers: 2, connection: depth_lstm}
  decoder: {layers: 2, connection: depth_lstm, fusion: {type: groups, size: 1}}
training:
  max_updates: 20
  batch_tokens: 400
  device: cpu
  precision: fp32
  schedule: {type: constant, peak: 0.01, warmup: 5}
  validation: {every: 20}
  log_every: 10
decoding: {beam: 2, max_length_ratio: 1, max_length_extra: 4}
"""


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, multi30k: Mapping[str, Sequence[str]]) -> Path:
    """A folder with 200 + 16 lines of Multi30k and a run file, `small.yaml`, on them."""
    folder = tmp_path_factory.mktemp("corpus")
    for language, lines in multi30k.items():
        for name, part in (("train", lines[:200]), ("test", lines[200:216])):
            (folder / f"{name}.{language}").write_text("\n".join(part) + "\n", encoding="utf-8")
    (folder / "small.yaml").write_text(RUN_FILE)
    return folder


@pytest.fixture(scope="session")
def run(corpus: Path) -> str:
    """A run directory: a depth-wise LSTM with two decoder groups, trained for a moment."""
    folder = corpus / "runs" / "small"
    settings = [f"run={folder}", f"data.prepared={corpus / 'prepared'}"]
    precision = torch.get_float32_matmul_precision()
    assert main(["train", str(corpus / "small.yaml"), *settings, "--quiet"]) == 0
    torch.set_float32_matmul_precision(precision)
    torch.set_flush_denormal(False)
    return str(folder)


Train = Callable[[RunPlan], Failure | None]


@pytest.fixture(scope="session")
def one_by_one() -> Callable[[Train], Callable[..., Iterator[tuple[RunPlan, Failure | None]]]]:
    """What stands for `train_runs`: each run is trained by a function, in this process."""

    def standing_for(train: Train) -> Callable[..., Iterator[tuple[RunPlan, Failure | None]]]:
        def runs(wanted: Iterable[RunPlan], **_: object) -> Iterator[tuple[RunPlan, Failure | None]]:
            for run in wanted:
                yield run, train(run)

        return runs

    return standing_for


@pytest.fixture(scope="session")
def train_here() -> Train:
    """Trains a run without the seconds that a process of its own takes to start."""

    def train(run: RunPlan) -> Failure | None:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            code = main(["train", run.base, *run.overrides, "--quiet"])
        torch.set_flush_denormal(False)
        return Failure(code, errors.getvalue().strip()) if code else None

    return train


PLAN = """
title: Two small systems
about: Four updates teach nothing.
base: small.yaml
settings: [training.max_updates=4, training.log_every=2]
directions:
  de-en: []
seeds: [1]
rounds: 1
samples: 100
baseline: lstm
claims: claims.yaml
more_tests: {more: later}
systems:
  lstm: {description: the base}
  broken:
    settings:
      - "training.schedule={type: constant, peak: 1e30, warmup: 0}"
      - training.clip_norm=null
      - training.max_updates=20
  plain:
    both: [connection=pre_norm]
"""
CLAIMS = """
claims:
  - {paper: A 2024, where: Table 1, task: WMT, higher: lstm, lower: plain, numbers: [28.5, 27.5]}
  - {paper: A 2024, where: Table 1, measure: decoding_speed, higher: plain, lower: lstm}
  - {paper: A 2024, where: Table 2, higher: lstm, lower: broken}
  - {paper: A 2024, where: Table 2, higher: lstm, lower: unknown}
"""


@pytest.fixture(scope="module")
def plan(corpus: Path) -> Path:
    (corpus / "plan.yaml").write_text(PLAN)
    (corpus / "claims.yaml").write_text(CLAIMS)
    for language in ("de", "en"):
        lines = (corpus / f"train.{language}").read_text().splitlines(keepends=True)
        (corpus / f"later.{language}").write_text("".join(lines[:20]))
    return corpus / "plan.yaml"
