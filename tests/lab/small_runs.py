"""Fixtures for analyses and experiments: tiny models, a few sentences, and a run trained for a moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from deepwire.checkpoint.store import save_model
from deepwire.cli.main import main
from deepwire.data.languages import Languages
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel

VOCABULARIES = Vocabularies.learn_from_blocks(
    WordsConfig(joint=True), [[Pair(1, "ein hund zwei katzen im haus", "a dog two cats in the house", 0)]]
)
ModelMaker = Callable[..., TranslationModel]
Store = Callable[..., str]


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
def store(tmp_path: Path) -> Store:
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
    assert main(["train", str(corpus / "small.yaml"), *settings, "--quiet"]) == 0
    return str(folder)


@pytest.fixture
def analyze(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The finding of ``deepwire analyze ... --json``."""

    def run(*arguments: object) -> Any:
        assert main(["analyze", *map(str, arguments), "--json"]) == 0
        (finding,) = json.loads(capsys.readouterr().out)["findings"]
        return finding

    return run
