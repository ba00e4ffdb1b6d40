from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from deepwire.checkpoint.model_files import DamagedError, write_manifest
from deepwire.checkpoint.store import load_model, save_model
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel

SHAPE = {"d_model": 8, "heads": 2, "feed_forward": 16, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
ModelMaker = Callable[..., TranslationModel]


@pytest.fixture
def saved(tmp_path: Path, make_model: ModelMaker, vocabularies: Vocabularies) -> Path:
    save_model(tmp_path / "model", make_model(), vocabularies, {"source": "de", "decoding": {"beam": 4}})
    return tmp_path / "model"


def test_a_model_comes_back_as_it_was(
    saved: Path, make_model: ModelMaker, vocabularies: Vocabularies
) -> None:
    loaded = load_model(saved)
    before, after = dict(make_model().named_parameters()), dict(loaded.model.named_parameters())
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert loaded.vocabularies.digest == vocabularies.digest
    assert loaded.metadata == {"source": "de", "decoding": {"beam": 4}}
    assert loaded.folder == saved
    assert not loaded.model.training


@pytest.mark.parametrize("encoder", [{"aggregation": "dense"}, {"connection": "mhc_lite"}])
def test_values_that_no_file_has_are_there(
    encoder: dict[str, object], tmp_path: Path, vocabularies: Vocabularies
) -> None:
    """Those of the file are not drawn first; random numbers of the caller stay as they were."""
    config = ModelConfig.model_validate({**SHAPE, "encoder": {"layers": 2, **encoder}})
    model = build_model(config, vocabularies.source.size, vocabularies.target.size).eval()
    save_model(tmp_path / "model", model, vocabularies, {})
    before = torch.get_rng_state()
    loaded = load_model(tmp_path / "model").model
    assert torch.equal(torch.get_rng_state(), before)
    text = torch.tensor([[4, 5, 6]])
    assert torch.equal(loaded.log_probs(text, text), model.log_probs(text, text))


def test_a_model_of_several_languages_comes_back_with_their_parameters(
    tmp_path: Path, vocabularies: Vocabularies
) -> None:
    """Their names say how many there are; without names neither side is accepted."""
    names: dict[str, object] = {
        "languages": ["cs", "de", "fr"],
        "directions": ["cs-de", "de-fr"],
        "tag": "none",
    }
    config = {"norm": True, "transform": "identity", "embedding": "both", "output_bias": True}
    model = build_model(
        ModelConfig.model_validate({**SHAPE, "languages": config}),
        vocabularies.source.size,
        vocabularies.target.size,
        languages=3,
    )
    save_model(tmp_path / "model", model, vocabularies, names)
    loaded = load_model(tmp_path / "model")
    assert loaded.languages == ("cs", "de", "fr")
    assert loaded.model.languages == 3
    found = dict(loaded.model.named_parameters())
    assert all(torch.equal(value, found[name]) for name, value in model.named_parameters())
    with pytest.raises(ValueError, match="must name the 3 languages"):
        save_model(tmp_path / "other", model, vocabularies, {"languages": ["cs", "de"]})
    record = json.loads((tmp_path / "model" / "config.json").read_text())
    for key in names:
        del record["metadata"][key]
    (tmp_path / "model" / "config.json").write_text(json.dumps(record))
    write_manifest(tmp_path / "model")
    with pytest.raises(ModelError, match="parameters of each target language, but names no languages"):
        load_model(tmp_path / "model")


def test_saving_again_replaces_and_leaves_nothing_behind(
    saved: Path, make_model: ModelMaker, vocabularies: Vocabularies
) -> None:
    save_model(saved, make_model(seed=2), vocabularies, {"second": True})
    assert load_model(saved).metadata == {"second": True}
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped byte": (lambda d: flip(d / "model.safetensors", -5), "model.safetensors: digest differs"),
    "flipped header": (lambda d: flip(d / "model.safetensors", 20), "model.safetensors: digest differs"),
    "truncated": (
        lambda d: (d / "model.safetensors").write_bytes(b"x" * 40),
        "model.safetensors: 40 bytes, not",
    ),
    "missing": (lambda d: (d / "model.safetensors").unlink(), "model.safetensors: missing"),
    "no config": (lambda d: (d / "config.json").unlink(), "config.json: missing"),
    "vocabulary": (lambda d: flip(next((d / "vocabulary").iterdir()), 3), "vocabulary/.*: digest differs"),
    "no manifest": (lambda d: (d / "manifest.json").unlink(), "manifest.json: missing"),
    "empty manifest": (lambda d: (d / "manifest.json").write_text(""), "manifest.json: cannot be read"),
    "manifest of nothing": (
        lambda d: (d / "manifest.json").write_text('{"files": {}}'),
        "manifest.json: lists no files",
    ),
    "odd manifest": (
        lambda d: (d / "manifest.json").write_text('{"files": {"model.safetensors": 5, "config.json": 5}}'),
        "no size and digest",
    ),
    "short manifest": (
        lambda d: (d / "manifest.json").write_text('{"files": {"x": {"bytes": 1, "blake2b": ""}}}'),
        "does not list model.safetensors",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(saved: Path, kind: str) -> None:
    damage, message = DAMAGE[kind]
    damage(saved)
    with pytest.raises(DamagedError, match=message) as caught:
        load_model(saved)
    assert caught.value.exit_code == 4
    assert str(saved) in caught.value.message


def in_manifest(folder: Path, name: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = manifest["files"]["config.json"]
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["../config.json", "/etc/passwd", "vocabulary/../../x", "a\\..\\b", "a\0b"])
def test_a_manifest_cannot_point_outside(saved: Path, name: str) -> None:
    in_manifest(saved, name)
    with pytest.raises(DamagedError, match="outside the folder"):
        load_model(saved)


def test_a_link_out_of_the_folder_is_refused(saved: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    shutil.move(saved / "config.json", secret)
    (saved / "config.json").symlink_to(secret)
    with pytest.raises(DamagedError, match="link out of the folder"):
        load_model(saved)


class Payload:
    """Touches a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.canary,)


def test_pickle_is_refused_and_never_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    file = tmp_path / "model.pt"
    file.write_bytes(pickle.dumps(Payload(canary)))
    with pytest.raises(ModelError, match="is a file") as caught:
        load_model(file)
    assert "not opened as a model" in caught.value.hint
    assert "'deepwire import'" in caught.value.hint
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(file, folder / "model.pt")
    with pytest.raises(ModelError, match=r"holds model\.pt, which is not opened as a model"):
        load_model(folder)
    disguised = tmp_path / "disguised"
    disguised.mkdir()
    shutil.copy(file, disguised / "model.safetensors")
    (disguised / "config.json").write_text("{}")
    write_manifest(disguised)
    with pytest.raises(ModelError):
        load_model(disguised)
    assert not canary.exists()


def rewrite(folder: Path, weights: bytes | None = None, **config: object) -> None:
    """Change files of a model and make its manifest fit again: an enemy can do that too."""
    if weights is not None:
        (folder / "model.safetensors").write_bytes(weights)
    record = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**record, **config}))
    (folder / "manifest.json").unlink()
    write_manifest(folder)


def with_header(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(shape: list[int], size: int, dtype: str = "F32") -> dict[str, object]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}


@pytest.mark.parametrize(
    "weights",
    [
        b"",
        b"abc",
        (2**60).to_bytes(8, "little") + b"{}",
        (50).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{{",
        with_header([1]),
        with_header(entry([10**9, 10**9], 4 * 10**18)),
        with_header(entry([10**9, 10**9], 16), b"0" * 16),
        with_header(entry([4], 16), b"0" * 15),
        with_header(entry([4], 16), b"0" * 32),
        with_header(entry([-4], 16), b"0" * 16),
        with_header(entry([4], 16, "PICKLE"), b"0" * 16),
        with_header({"x": {"dtype": "F32"}}),
        with_header({"x": 3}),
    ],
    ids=range(14),
)
def test_odd_tensor_files_are_refused_before_anything_is_allocated(saved: Path, weights: bytes) -> None:
    rewrite(saved, weights)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_model(saved)


def test_a_configuration_of_absurd_size_is_refused_before_anything_is_allocated(saved: Path) -> None:
    record = json.loads((saved / "config.json").read_text())["model"]
    rewrite(saved, model={**record, "d_model": 2**20, "feed_forward": 2**30})
    with pytest.raises(ModelError):
        load_model(saved)


def test_weights_that_are_not_finite_are_refused(
    make_model: ModelMaker, vocabularies: Vocabularies, tmp_path: Path
) -> None:
    model = make_model()
    torch.nn.init.constant_(next(model.decoder.parameters()), float("nan"))
    save_model(tmp_path / "model", model, vocabularies, {})
    with pytest.raises(ModelError, match=r"safetensors: NaN or infinity in decoder\."):
        load_model(tmp_path / "model")


def test_parameters_that_do_not_fit_are_listed(saved: Path, tmp_path: Path, make_model: ModelMaker) -> None:
    record = json.loads((saved / "config.json").read_text())["model"]
    rewrite(saved, model={**record, "feed_forward": 32})
    with pytest.raises(ModelError, match=r"do not fit the configuration: .* is \[.*\], not \[.*32"):
        load_model(saved)
