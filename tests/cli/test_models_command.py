"""`deepwire models`: a registry in a folder and behind a local server, right and tampered with."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from untrained_models import save_untrained

from deepwire.checkpoint.model_registry import REGISTRY, Shelf
from deepwire.cli.main import main
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.errors import DataError

SCORES = {
    "systems": [
        {
            "name": "runs/a",
            "scores": [{"name": "BLEU", "score": 35.0, "signature": "nrefs:1|case:mixed|tok:13a"}],
        }
    ]
}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("http_proxy", "HTTP_PROXY", "DEEPWIRE_OFFLINE", "DEEPWIRE_MODELS"):
        monkeypatch.delenv(name, raising=False)
    words = Vocabularies.learn_from_blocks(WordsConfig(joint=True), [[Pair(1, "a b", "b c", 0)]])
    small = {"d_model": 16, "heads": 2, "feed_forward": 32}
    return save_untrained(tmp_path / "model", words, small, {"source": "de", "target": "en"})


@pytest.fixture
def shelf(model: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    Path("scores.json").write_text(json.dumps(SCORES), encoding="utf-8")
    options = ["--name", "ab", "--licence", "CC0-1.0", "--scores", "scores.json", "--test", "flickr"]
    assert main(["models", "add", str(model), "shelf", *options]) == 0
    capsys.readouterr()
    return Path("shelf")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def address(shelf: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(shelf))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_the_list_has_scores_with_signatures(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list", "--registry", "shelf"]) == 0
    said = capsys.readouterr().out
    assert "ab  de-en  " in said
    assert "CC0-1.0" in said
    assert "flickr: 35.00  BLEU|nrefs:1|case:mixed|tok:13a" in said
    assert main(["models", "list", "--registry", "shelf", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["name"] == "ab"
    assert {file["path"] for file in entry["files"]} >= {"model.safetensors", "config.json", "manifest.json"}


def test_a_model_comes_from_a_server_as_it_was(
    address: str, model: Path, capsys: pytest.CaptureFixture[str], refused
) -> None:
    assert main(["models", "get", "ab", "--registry", address]) == 0
    assert "models/ab (licence: CC0-1.0)" in capsys.readouterr().out
    for file in ("model.safetensors", "config.json"):
        assert (Path("models/ab") / file).read_bytes() == (model / file).read_bytes()
    Path("text").write_text("a b\n", encoding="utf-8")
    assert main(["translate", "models/ab", "--input", "text", "--output", "out", "--quiet"]) == 0
    refused(2, "models/ab: exists", "models", "get", "ab", "--registry", f"{address}/{REGISTRY}")


def test_an_interrupted_download_goes_on(address: str, shelf: Path) -> None:
    weights = shelf / "ab" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="SHA-256"):
        Shelf(address).get("ab", Path("got"))
    assert not Path("got").exists()
    assert (Path(".got.part") / "config.json").exists()
    weights.write_bytes(whole)
    (shelf / "ab" / "config.json").unlink()  # it is there already, and not asked for again
    Shelf(address).get("ab", Path("got"))
    assert (Path("got") / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("remote", [False, True])
def test_a_file_that_was_changed_is_refused(shelf: Path, address: str, remote: bool) -> None:
    weights = shelf / "ab" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"digest|SHA-256"):
        Shelf(address if remote else str(shelf)).get("ab", Path("got"))
    assert not Path("got").exists()


def test_a_registry_cannot_name_files_elsewhere(shelf: Path) -> None:
    record = json.loads((shelf / REGISTRY).read_text())
    for path in ("../evil", "/etc/evil", "a/../../evil", ".hidden", "a\\b", "c:evil", "a//b"):
        record["models"][0]["files"][0]["path"] = path
        (shelf / REGISTRY).write_text(json.dumps(record))
        with pytest.raises(DataError, match="plain path"):
            Shelf(str(shelf))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ('{"format": 2, "models": []}', "newer version"),
        ('{"format": 1, "models": [{"name": "../x"}]}', r"models.0.name: String should match"),
    ],
)
def test_a_damaged_registry_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / REGISTRY).write_text(text)
    with pytest.raises(DataError, match=said):
        Shelf(str(tmp_path))


def test_what_would_change_the_terminal_is_never_printed(shelf: Path, command) -> None:
    whole = (shelf / REGISTRY).read_text()
    places = ("name", "licence", "description", "directions", "path", "test", "signature")
    for place, sign in product(places, ("\x1b[2J", "\n", "\u202e")):
        registry = json.loads(whole)
        (entry,) = registry["models"]
        of = {"path": entry["files"][0], "test": entry["scores"][0], "signature": entry["scores"][0]}
        of.get(place, entry)[place] = [f"de{sign}-en"] if place == "directions" else f"a{sign}b"
        (shelf / REGISTRY).write_text(json.dumps(registry))
        printed = command("models", "list", "--registry", shelf)
        assert (printed.code, printed.out) == (3, ""), place
        assert sign not in printed.err.rstrip("\n"), place
