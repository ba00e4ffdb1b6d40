"""Programs are answered over HTTP, by deepwire's interface and by that of LibreTranslate."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from contract_runs import start_command, stored
from contract_texts import EXACT, copy_of_old

SOURCE = "Ein Hund rennt im Schnee."
Ask = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_old(tmp_path_factory.mktemp("serve"))


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Ask]:
    """A function that asks a server, which ends in good order at the end."""
    (out, inner), null = os.pipe(), os.open(os.devnull, os.O_RDWR)
    child = start_command(
        "serve",
        "model",
        "--port",
        0,
        *EXACT[:-1],
        *options,
        cwd=folder,
        stdin=null,
        stdout=null,
        stderr=inner,
    )
    os.close(inner)
    os.close(null)
    with os.fdopen(out, encoding="utf-8") as said:
        address = next(word for line in said for word in line.split() if word.startswith("http://"))

        def ask(path: str, body: object = None) -> tuple[int, Any]:
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=300) as answer:
                    status, text = answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                status, text = error.code, error.read().decode()
            return status, json.loads(text) if text[:1] in ("{", "[") else text

        try:
            yield ask
        finally:
            os.kill(child, signal.SIGTERM)
            status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_interface_of_deepwire(folder: Path) -> None:
    known = {text: links for text, _, links in stored("texts")["beam"]}
    with served(folder) as ask:
        assert ask("/readyz")[0] == ask("/healthz")[0] == 200
        assert "<html" in ask("/")[1].lower()
        status, answer = ask("/translate", {"texts": [SOURCE, ""], "alignment": True, "n_best": 2})
        assert status == 200
        one, empty = answer["translations"]
        assert one["text"] == "A dog is running in the snow"
        assert one["alignment"] == known[one["text"]]
        assert len(one["candidates"]) == 2
        assert empty["text"] == ""
        for wrong in ({}, {"text": 3}, {"text": SOURCE, "beams": 3}, {"text": SOURCE, "target": "fr"}):
            status, answer = ask("/translate", wrong)
            assert status in (400, 422)
            assert answer["error"]["code"]
        assert ask("/nowhere")[0] == 404
        assert ask("/translate", {"text": SOURCE})[1]["translations"][0]["text"] == one["text"]


def test_the_interface_of_libretranslate(folder: Path) -> None:
    with served(folder, "--api", "libretranslate") as ask:
        assert "de" in {language["code"] for language in ask("/languages")[1]}
        wanted = {"q": SOURCE, "source": "de", "target": "en"}
        assert ask("/translate", wanted)[1]["translatedText"].startswith("A dog is running in the snow")
        many = ask("/translate", {**wanted, "q": [SOURCE, SOURCE]})[1]["translatedText"]
        assert len(many) == 2
        assert ask("/translate", {**wanted, "target": "fr"})[0] == 400
        answer = ask("/deepwire/translate", {"text": SOURCE})[1]
        assert answer["translations"][0]["text"] == "A dog is running in the snow"
