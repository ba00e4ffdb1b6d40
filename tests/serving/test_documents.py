"""A server whose models read documents, with an encoder and without."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepwire
from deepwire.data.context import ContextConfig
from deepwire.serving.served_model import load_served_model


@pytest.mark.parametrize("architecture", [{}, {"architecture": "decoder_only"}], ids=str)
@pytest.mark.parametrize("context", [{"source": 2}, {"source": 1, "target": 1}], ids=str)
def test_texts_of_a_request_are_documents_and_requests_do_not_mix(
    tmp_path: Path, serving, context, architecture
) -> None:
    folder = serving.save(tmp_path / "model", None, ContextConfig(**context), **architecture)
    model = deepwire.load(folder, "cpu", "fp32")
    texts = [*serving.texts(4), "", *serving.texts(3, start=9)]
    expected = model.translate(texts)
    assert expected != [model.translate([text])[0] for text in texts], "context must make a difference"
    served = load_served_model([str(folder)], "cpu", "fp32", settings={}, warn=print)
    with serving.running(served) as server:
        assert server.post({"texts": texts}).texts == expected
        assert server.post({"texts": texts[5:]}).texts == expected[5:]
        assert server.post({"text": "\n".join(texts)}).texts == ["\n".join(expected)]
        assert server.post({"text": texts[1]}).texts == model.translate([texts[1]])


def test_a_model_without_encoder_is_served(tmp_path: Path, serving) -> None:
    folder = serving.save(tmp_path / "model", architecture="decoder_only")
    expected = deepwire.load(folder, "cpu", "fp32").translate(serving.texts(9))
    assert len(set(expected)) > 1
    served = load_served_model([str(folder)], "cpu", "fp32", settings={}, warn=print)
    with serving.running(served) as server:
        assert server.post({"texts": serving.texts(9)}).texts == expected
        scored = server.post({"texts": serving.texts(1), "n_best": 2}).json["translations"][0]
        assert len(scored["candidates"]) == 2
