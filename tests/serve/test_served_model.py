from __future__ import annotations

import pytest
import torch

import deepwire
from deepwire.decoding.search import generate
from deepwire.decoding.translation_io import Request
from deepwire.errors import UsageError
from deepwire.serve.model_pool import load_pool


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
    (wide,) = served_model.translate(
        [Request("ein hund")], lengths, served_model.search._replace(beam=4, n_best=3)
    )
    assert len(wide.candidates) == 3
    (usual,) = served_model.translate([Request("ein hund")], lengths, served_model.search)
    assert len(usual.candidates) == 1
    assert served_model.search == (served_model, 2, 1, False)
    with pytest.raises(UsageError, match="n_best must be at most beam"):
        served_model.translate([Request("ein hund")], lengths, served_model.search._replace(beam=1, n_best=2))


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


@pytest.mark.parametrize("settings", [{"sampling": {"mbr": 8}}, {"n_best": 3}])
def test_settings_that_a_server_has_not_are_refused(one_direction, settings):
    with pytest.raises(UsageError, match=f"decoding setting {next(iter(settings))} is not for servers"):
        load_pool([str(one_direction)], "cpu", "fp32", settings=settings, warn=print)
