from __future__ import annotations

import json

import pytest
import torch

import deepwire
from deepwire.checkpoint.model_files import write_manifest
from deepwire.decoding.search import generate
from deepwire.decoding.translation_io import Request
from deepwire.errors import ModelError, UsageError
from deepwire.serve.model_pool import ModelPool
from deepwire.serve.request import RequestError
from deepwire.serve.served_model import Search, ServedModel, load_served_model


def test_each_core_gets_a_batch_of_its_own(served_model, serving, monkeypatch):
    """Twelve texts for two cores are two batches; two texts stay together, for a part is too little work."""
    batches = []

    def counted(model, batch, config):
        batches.append(len(batch.source))
        return generate(model, batch, config)

    monkeypatch.setattr("deepwire.decoding.line_steps.generate", counted)
    texts = serving.texts(12)
    alone = [
        served_model.translate([Request(text)], served_model.lengths([text]), served_model.search)[0].text
        for text in texts
    ]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert served_model.cores == 2
        for count, parts in ((12, 2), (2, 1)):
            batches.clear()
            asked = texts[:count]
            found = served_model.translate(
                [Request(text) for text in asked], served_model.lengths(asked), served_model.search
            )
            assert [translation.text for translation in found] == alone[:count]
            assert len(batches) == parts
            assert max(batches) <= count // parts + 2
    finally:
        torch.set_num_threads(before)


def test_the_search_of_a_request_changes_nothing_for_others(served_model):
    lengths = served_model.lengths(["ein hund"])
    (wide,) = served_model.translate([Request("ein hund")], lengths, Search(4, 3))
    assert len(wide.candidates) == 3
    (usual,) = served_model.translate([Request("ein hund")], lengths, served_model.search)
    assert len(usual.candidates) == 1
    assert served_model.search == Search(2, 1)
    with pytest.raises(UsageError, match="n_best must be at most beam"):
        served_model.translate([Request("ein hund")], lengths, Search(1, 2))


def test_where_the_languages_are_not_known_none_can_be_named(served_model):
    unknown = ServedModel(served_model._translator, "served_model")
    assert unknown.into(None, None) == ("", "")
    assert ModelPool([unknown]).languages() == {
        "several": False,
        "sources": [],
        "targets": [],
        "directions": [],
        "through": [],
        "others": True,
    }
    with pytest.raises(RequestError, match="one direction only"):
        unknown.into("en", None)


def test_a_request_can_ask_for_alignments(served_model, one_direction, serving):
    """They are those that Python gives, and count the words of a whole text, empty lines aside."""
    text = "ein hund\n\nzwei drei katze"
    with serving.running(served_model) as server:
        (found,) = server.post({"text": text, "alignment": True}).json["translations"]
        assert server.get("/languages").json["alignment"] is True
        assert "alignment" not in server.post({"text": text}).json["translations"][0]
        (best,) = server.post({"text": "ein hund", "alignment": True, "n_best": 2}).json["translations"]
    model = deepwire.load(one_direction, "cpu", "fp32")
    (whole,) = model.translate([text], alignment=True)
    assert (found["text"], found["alignment"]) == (whole.text, [list(link) for link in whole.links])
    assert whole.links
    assert best["alignment"] == best["candidates"][0]["alignment"]
    assert len(best["candidates"]) == 2


def test_a_request_can_lower_the_longest_translation(served_model, serving):
    """Random models write up to the limit; the limit of the server stays the highest."""
    with serving.running(served_model) as server:

        def subwords(text, **asked):
            (found,) = server.post({"text": text, "n_best": 1, **asked}).json["translations"]
            return served_model._vocabularies.target.encode(found["text"])

        text = "ein hund schläft auf dem ball"
        short = {"max_length_ratio": 0, "max_length_extra": 3}
        assert len(subwords(text)) > 3
        assert len(subwords(text, **short)) <= 3
        assert len(subwords(text, **short, sentences=True)) <= 3
        ratio, extra = served_model.longest
        assert subwords(text, max_length_ratio=ratio, max_length_extra=extra) == subwords(text)
        answer = server.post({"text": text, "max_length_extra": extra + 1})
        assert answer.status == 422
        assert f"max_length_extra: at most {extra}, but is {extra + 1}" in answer.json["error"]["message"]
        answer = server.post({"text": text, "max_length_ratio": 0, "max_length_extra": 0})
        assert (answer.status, answer.json["error"]["code"]) == (422, "invalid")
        assert "are both 0: no output would be allowed" in answer.json["error"]["message"]


@pytest.mark.parametrize("settings", [{"sampling": {"mbr": 8}}, {"n_best": 3}])
def test_settings_that_a_server_has_not_are_refused(one_direction, settings):
    with pytest.raises(UsageError, match=f"decoding setting {next(iter(settings))} is not for servers"):
        load_served_model([str(one_direction)], "cpu", "fp32", settings=settings, warn=print)


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"source": "en", "target": "de"}, True),
        ({"target": "fr"}, True),
        ({"source": None}, True),
        ({"scores": {"bleu": 12.0}}, False),
        ({}, False),
    ],
)
def test_another_model_on_disk_is_not_served(tmp_path, serving, change, refused):
    """It was loaded again and answered in another language with status 200."""
    folder = serving.save(tmp_path / "m")
    model = load_served_model([str(folder)], "cpu", "fp32", settings={}, warn=print)
    config = json.loads((folder / "config.json").read_text())
    config["metadata"] |= change
    (folder / "config.json").write_text(json.dumps(config))
    write_manifest(folder)
    model.unload()
    if not refused:
        assert model.load().direction == ("de", "en")
        return
    for _ in range(2):
        with pytest.raises(ModelError, match="another model"):
            model.load()
