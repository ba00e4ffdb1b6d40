from __future__ import annotations

import pytest

from deepwire.data.languages import Direction, Languages
from deepwire.decoding.translation_io import Request
from deepwire.errors import UsageError
from deepwire.serve.model_pool import ModelPool, ServedModel, load_pool, target_of
from deepwire.serve.request import RequestError


@pytest.fixture(scope="module")
def folders(tmp_path_factory, serving):
    """Models of de-en, en-fr and en-es."""
    folder = tmp_path_factory.mktemp("pool")
    made = [serving.save(folder / "de-en")]
    for name in ("en-fr", "en-es"):
        made.append(serving.save(folder / name, Languages((Direction.parse(name),))))
    return [str(path) for path in made]


def pool_of(names, **options):
    return load_pool(names, "cpu", "fp32", settings={}, warn=print, **options)


def translated(pool, route, text):
    """Leg after leg, as the service does it."""
    for leg in route:
        request = Request(text, to=leg.to, from_=leg.from_)
        search = pool.search._replace(model=leg.model)
        text = leg.model.translate([request], leg.model.lengths([text]), search)[0].text
    return text


def test_each_direction_has_its_model_and_others_go_through_a_common_language(folders):
    pool = pool_of(folders)
    assert [str(way) for way in pool.routes] == ["de-en", "en-es", "en-fr", "de-es", "de-fr"]
    legs = pool.route("fr", "de")
    assert [(leg.model.name, str(leg.direction)) for leg in legs] == [("de-en", "de-en"), ("en-fr", "en-fr")]
    assert target_of(legs) == "fr"
    alone = pool_of(folders[:1]), pool_of(folders[1:2])
    middle = translated(alone[0], alone[0].route(None, None), "ein hund")
    assert translated(pool, legs, "ein hund") == translated(alone[1], alone[1].route("fr", "en"), middle)
    assert pool.languages()["several"] is True
    assert pool.name == "de-en, en-fr, en-es"


def test_a_language_that_is_needed_or_unknown_is_named(folders):
    pool = pool_of(folders)
    assert [leg.model.name for leg in pool.route("en", None)] == ["de-en"]
    with pytest.raises(RequestError, match="source: is needed; the directions are de-en, "):
        pool.route("fr", None)
    with pytest.raises(RequestError, match="there is no direction fr-de"):
        pool.route("de", "fr")


def test_models_of_the_same_direction_are_an_ensemble(folders):
    pool = pool_of([folders[0], folders[0], folders[1]])
    assert pool.name == "de-en + de-en, en-fr"
    assert [leg.model.name for leg in pool.route("fr", "de")] == ["de-en + de-en", "en-fr"]


def test_what_cannot_be_served_is_refused(folders, served_model):
    unknown = ServedModel(served_model._translator, "unknown")
    with pytest.raises(UsageError, match="unknown: it is not known which languages"):
        ModelPool([served_model, unknown])
    with pytest.raises(UsageError, match="the model translates de-en"):
        pool_of([f"fr-de={folders[0]}"])
    with pytest.raises(UsageError, match="is not a direction such as en-de"):
        pool_of([f"french={folders[0]}"])
    assert pool_of([f"de-en={folders[0]}"]).route("en", "de")[0].model.name == "de-en"


def test_a_text_whose_translation_on_the_way_is_too_long_is_named(folders, serving):
    """By its number in the request, whatever is translated line by line or sentence by sentence."""
    pool = pool_of(folders)
    pool.route("fr", "de")[1].model.most_subwords = 0
    body = {"texts": ["", "ein hund"], "source": "de", "target": "fr"}
    with serving.running(pool) as server:
        for sentences in (False, True):
            error = server.post({**body, "sentences": sentences}).json["error"]
            assert (error["code"], error["index"]) == ("invalid", 1)
            assert error["message"].startswith("text 1: its translation on the way has")
