"""A server whose models read documents, with an encoder and without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import deepwire
from deepwire.cli.main import main
from deepwire.data.context import ContextConfig
from deepwire.serve.libretranslate import libretranslate_site


@pytest.mark.parametrize(
    ("context", "architecture"),
    [({"source": 2}, {}), ({"source": 1, "target": 1}, {"architecture": "decoder_only"})],
    ids=["2+0", "1+1"],
)
def test_texts_of_a_request_are_documents_and_requests_do_not_mix(
    tmp_path: Path, serving, context, architecture
) -> None:
    folder = serving.save(tmp_path / "model", None, ContextConfig(**context), **architecture)
    model = deepwire.load(folder, "cpu", "fp32")
    texts = [*serving.texts(4), "", *serving.texts(3, start=9)]
    expected = model.translate(texts)
    assert expected != [model.translate([text])[0] for text in texts], "context must make a difference"
    served = serving.serve(folder)
    with serving.running(served) as server:
        assert server.post({"texts": texts}).texts == expected
        assert server.post({"texts": texts[5:]}).texts == expected[5:]
        assert server.post({"text": "\n".join(texts)}).texts == ["\n".join(expected)]
        assert server.post({"text": texts[1]}).texts == model.translate([texts[1]])


@pytest.mark.parametrize(
    ("context", "count"),
    [
        ({"source": 1, "target": 1}, 5),
        pytest.param({"source": 2}, 260, marks=pytest.mark.slow),  # more than are translated together
    ],
    ids=["1+1", "long"],
)
def test_documents_in_files_are_read_in_their_order(tmp_path: Path, serving, context, count) -> None:
    folder = serving.save(tmp_path / "model", None, ContextConfig(**context))
    model = deepwire.load(folder, "cpu", "fp32")
    lines = [text.replace("\n", " ") for text in serving.texts(8)]
    lines = [lines[place * place % 7] for place in range(count)]
    expected = model.translate(lines)
    assert expected != [model.translate([line])[0] for line in lines], "context must make a difference"
    path = tmp_path / "a.txt"
    path.write_text("\n".join(lines))
    command = ["translate-file", str(folder), "--input", str(path), "--output", str(tmp_path / "b.txt")]
    assert main([*command, "--device", "cpu", "--precision", "fp32", "--quiet"]) == 0
    assert (tmp_path / "b.txt").read_text() == "\n".join(expected)
    served = serving.serve(folder)
    with serving.running(served) as server:
        answer = server.request("POST", "/translate_file?name=a.txt", path.read_bytes())
        assert answer.body.decode() == "\n".join(expected)


def test_sentences_of_a_text_are_read_in_their_order(tmp_path: Path, serving) -> None:
    folder = serving.save(tmp_path / "model", None, ContextConfig(source=1, target=1))
    model = deepwire.load(folder, "cpu", "fp32")
    first, second, third = serving.texts(3)
    lines, others = [first, second, third, second], [third, first]  # one stands there twice
    expected = [model.translate(lines), model.translate(others)]
    assert expected[0] != [model.translate([line])[0] for line in lines], "context must make a difference"
    served = serving.serve(folder)
    with serving.running(served) as server:
        answer = server.post({"texts": ["\n".join(lines), "", "\n".join(others)], "sentences": True})
        found = answer.json["translations"]
        assert [[one["text"] for one in text["sentences"]] for text in found] == [
            expected[0],
            [],
            expected[1],
        ]
        assert found[0]["text"] == "\n".join(expected[0])


def test_texts_for_the_interface_of_libretranslate_are_documents(tmp_path: Path, serving) -> None:
    folder = serving.save(tmp_path / "model", None, ContextConfig(source=1))
    model = deepwire.load(folder, "cpu", "fp32")
    first, second, third = serving.texts(3)
    served = serving.serve(folder)
    with serving.running(served, site=libretranslate_site) as server:
        body = {"q": [f"{first}\n{second}", third], "source": "de", "target": "en"}
        answer = server.request(
            "POST", "/translate", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        pair = "\n".join(model.translate([first, second]))
        assert answer.json["translatedText"] == [pair, model.translate([third])[0]]
