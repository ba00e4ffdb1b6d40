"""From a model of three languages on real text to the table; they are kept until something changes."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import deepwire
from deepwire.checkpoint.store import save_model
from deepwire.cli.main import main
from deepwire.data.languages import Direction, Languages
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import BpeConfig
from deepwire.decoding.translator import Translator
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

EXAMPLES = Path(__file__).parents[3] / "examples" / "multi30k"
DIRECTIONS = tuple(map(Direction.parse, ("en-de", "de-en", "en-qaa", "qaa-en")))
SMALL = {"d_model": 16, "heads": 2, "feed_forward": 32, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
SMALL |= {"initialization": "lipschitz"}
Run = Callable[..., dict[str, Any]]


def captions(language: str, first: int, last: int) -> list[str]:
    """Real German and English; the third language is English in other letters."""
    if language == "qaa":
        return [codecs.encode(line, "rot13") for line in captions("en", first, last)]
    return gzip.decompress((EXAMPLES / f"val.{language}.gz").read_bytes()).decode().split("\n")[first:last]


def save(
    folder: Path,
    directions: tuple[Direction, ...],
    seed: int = 1,
    *,
    one_direction: Mapping[str, str] | None = None,
) -> str:
    """A model as training writes it, but drawn at random."""
    languages = Languages(directions)
    lines = [line for language in languages.names for line in captions(language, 0, 200)]
    vocabularies = Vocabularies.learn_joint(BpeConfig(size=400), lines)
    torch.manual_seed(seed)
    size = vocabularies.source.size + (0 if one_direction else languages.tags)
    own = {} if one_direction else {"norm": True, "transform": "identity"}
    config = ModelConfig.model_validate({**SMALL, "languages": own})
    model = build_model(config, size, size, languages=len(languages.names))
    metadata = {
        **(one_direction or languages.to_metadata()),
        "training_pairs": {"en-de": 9000, "de-en": 9000, "en-qaa": 90, "qaa-en": 90},
        "decoding": {"beam": 1, "max_length_ratio": 1, "max_length_extra": 2},
    }
    save_model(folder, model, vocabularies, metadata)
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(tmp_path_factory.mktemp("models") / "three", DIRECTIONS)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in a folder with a test set of six lines and training text, its JSON read."""
    monkeypatch.chdir(tmp_path)
    for language in ("de", "en", "qaa"):
        for name, part in (("test", captions(language, 0, 6)), ("train", captions(language, 6, 150))):
            Path(f"{name}.{language}").write_text("".join(f"{line}\n" for line in part), encoding="utf-8")

    def call(*arguments: str) -> dict[str, Any]:
        common = ["--test", "test", "--device", "cpu", "--precision", "fp32", "--json"]
        assert main(["evaluate-directions", *arguments, *common]) == 0
        return json.loads(capsys.readouterr().out)

    return call


def rows(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["direction"]: row for block in found["blocks"] for row in block["directions"]}


def test_every_direction_is_translated_into_its_language(run: Run, model: str) -> None:
    found = run(model, "--zero-shot", "--language-text", "train", "--output", "kept")
    assert set(rows(found)) == {*map(str, DIRECTIONS), "de-qaa", "qaa-de"}
    assert found["notes"].count("translated in fp32") == 1
    assert [block["title"] for block in found["blocks"]][3] == "Zero-shot: directions that were not trained"
    translator = deepwire.load(model, "cpu", "fp32")
    for direction in ("en-de", "qaa-en", "de-qaa"):
        source, target = direction.split("-")
        expected = translator.translate(captions(source, 0, 6), to=target)
        assert Path(f"kept/{direction}.hyp").read_text(encoding="utf-8").splitlines() == expected
    assert rows(found)["de-qaa"]["zero_shot"]
    assert rows(found)["en-de"]["training_pairs"] == 9000
    assert all(row["reference_right_language"] == 1 for row in rows(found).values())
    names = [average["name"] for average in found["blocks"][1]["averages"]]
    assert names == ["all", "low (below 100,000 pairs)"]


def test_kept_translations_are_scored_alike_and_not_made_again(
    run: Run, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(model, "--output", "kept")
    made: list[str] = []
    real = Translator.translate

    def counted(self: Translator, lines: list[str], *rest: Any, **more: Any) -> list[str]:
        made.append(str(more["to"]))
        return real(self, lines, *rest, **more)

    monkeypatch.setattr(Translator, "translate", counted)
    assert run(model, "--output", "kept")["blocks"] == first["blocks"]
    assert made == []
    stored = run("kept")
    assert stored["blocks"] == first["blocks"]
    assert stored["system"] == model
    Path("test.de").write_text("".join(f"{line}\n" for line in captions("de", 50, 56)), encoding="utf-8")
    run(model, "--output", "kept")
    assert made == ["en"]  # only the source of de-en has changed
    run(model, "--output", "kept", "--beam", "2")
    assert len(made) == 5


def test_one_model_for_each_direction_is_a_baseline(run: Run, model: str) -> None:
    for direction in DIRECTIONS:
        save(Path(f"single/{direction}"), (direction,), seed=2)
    found = run(model, "single/{direction}", "--samples", "10")
    assert found["baseline"] == "single/{direction}"
    assert all(len(row["comparisons"]) == 2 for row in rows(found).values())
    swapped = run(
        "single/{direction}", model, "--samples", "10", "--directions", ",".join(map(str, DIRECTIONS))
    )
    for name, row in rows(found).items():
        assert rows(swapped)[name]["scores"] == row["baseline"]


def test_a_model_of_one_direction_scores_no_other(
    run: Run, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also beside a model that has it, and before anything is translated."""
    ways = {"single": {"source": "en", "target": "de"}, "unnamed": {"source": "source", "target": "target"}}
    for name, way in ways.items():
        save(Path(name), (Direction("en", "de"),), one_direction=way)
    files = ["--source", "test.de", "--reference", "test.en", "--direction", "de-en"]
    assert main(["evaluate", "--model", model, "--model", "single", *files]) == 2
    assert "single: translates en-de, not de-en" in capsys.readouterr().err
    files = ["--source", "test.en", "--reference", "test.de", "--direction", "en-de"]
    assert main(["evaluate", "--model", "unnamed", "--model", "single", *files]) == 0
    save(Path("back"), (Direction("en", "de"),), one_direction={"source": "de", "target": "en"})
    assert main(["evaluate", "--model", "single", "--model", "back", *files[:4]]) == 2
    assert "back translates de-en, and single en-de: one text" in capsys.readouterr().err


def test_trained_directions_without_a_test_set_are_left_out_and_named(run: Run, model: str) -> None:
    Path("test.qaa").unlink()
    found = run(model)
    assert set(rows(found)) == {"en-de", "de-en"}
    assert "there is no test set for en-qaa, qaa-en: left out" in found["notes"]
