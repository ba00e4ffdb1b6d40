"""Terms put into translations that lack them: all are there, where the model likes them, with its scores."""

from __future__ import annotations

import pytest
import torch

from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import BOS, EOS, Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.decoding import second_searches
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.required_phrases import WordBounds
from deepwire.decoding.scored_translations import between_words
from deepwire.decoding.terminology import Term, Terminology
from deepwire.decoding.translation_io import Request
from deepwire.decoding.translator import Translator
from deepwire.errors import UsageError

WORDS = ["ein", "zwei", "drei", "hund", "katze", "haus", "mann", "frau"]
LINES = ["ein hund", "zwei katze drei haus", "hund hund", "frau", "", "mann ein zwei drei hund"]
TERMS = Terminology((Term("hund", ("katze",)), Term("drei", ("haus mann",)), Term("frau", ("zwei", "drei"))))


@pytest.fixture(scope="module")
def vocabularies():
    pairs = [Pair(line, " ".join(WORDS), " ".join(WORDS), 0) for line in range(3)]
    return Vocabularies.learn(WordsConfig(), pairs)


def translator(model, vocabularies, **settings):
    config = DecodingConfig.model_validate(
        {"max_length_extra": 6, "beam": 3, "term_search": "insert", **settings}
    )
    return Translator([model], vocabularies, config, terms=TERMS)


@pytest.fixture
def no_search(monkeypatch):
    """The constrained search is not needed."""

    def refuse(*_args):
        raise AssertionError("searched")

    monkeypatch.setattr(second_searches.SentenceSearch, "search_with", refuse)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("settings", [{}, {"beam": 1}, {"window": 2, "batch_tokens": 4}])
def test_translations_have_their_terms_and_the_models_scores(toys, vocabularies, seed, settings, no_search):
    model = translator(toys.Model(size=12, seed=seed), vocabularies, **settings)
    for line, found in zip(LINES, model.translations(LINES), strict=True):
        best = found.candidates[0]
        for term in TERMS.find(line):
            assert term.count(best.text) >= list(TERMS.find(line)).count(term), (line, best.text)
        if line:
            (score,) = model.score([(line, best.text)])
            assert best.log_probability == pytest.approx(score.log_probability, abs=1e-4)


def test_a_given_beginning_stays(toys, vocabularies, no_search):
    model = translator(toys.Model(size=12, seed=1), vocabularies)
    (found,) = model.translations([Request("ein hund", prefix="frau mann")])
    assert found.text.startswith("frau mann ")
    assert "katze" in found.text


def test_what_has_its_terms_is_not_touched(toys, vocabularies, monkeypatch):
    free = Translator([toys.Model(size=12, seed=2)], vocabularies, DecodingConfig(max_length_extra=6))
    texts = free.translate(LINES)
    having = Terminology((Term("ein", (texts[0].split()[0],)),))
    scored = []
    monkeypatch.setattr(
        "deepwire.decoding.sentence_search.SentenceSearch.scores_of", lambda *given: scored.append(given)
    )
    config = DecodingConfig(max_length_extra=6, term_search="insert")
    model = Translator([toys.Model(size=12, seed=2)], vocabularies, config, terms=having)
    assert model.translate(LINES[:1]) == texts[:1]
    assert scored == []


def test_a_term_goes_where_the_model_likes_it_best(toys, vocabularies, no_search):
    """A model that writes ein zwei drei hund, but would as soon write haus as drei."""

    model, ids = toys.Model(size=12), {word: vocabularies.target.encode(word)[0] for word in WORDS}
    follows = {BOS: "ein", ids["ein"]: "zwei", ids["zwei"]: "drei", ids["drei"]: "hund", ids["haus"]: "hund"}
    step = model.step

    def counting(tokens, state):
        log_probs, state = step(tokens, state)
        log_probs.fill_(-30.0)
        for row, token in enumerate(tokens.tolist()):
            log_probs[row, ids[follows[token]] if token in follows else EOS] = -0.01
            if token == ids["zwei"]:
                log_probs[row, ids["haus"]] = -3.0
        return log_probs, state

    model.step = counting
    terms = Terminology((Term("mann", ("haus",)),))
    made = Translator(
        [model], vocabularies, DecodingConfig(beam=1, max_length_extra=6, term_search="insert"), terms=terms
    )
    assert made.translate(["mann", "frau"]) == ["ein zwei haus hund", "ein zwei drei hund"]


def test_a_wide_beam_can_be_asked_for(toys, vocabularies, monkeypatch):
    def refuse(*_args):
        raise AssertionError("inserted")

    monkeypatch.setattr(second_searches.SentenceSearch, "continued", refuse)
    for settings in ({"term_search": "beam"}, {"n_best": 2}):
        model = translator(toys.Model(size=12, seed=1), vocabularies, **settings)
        assert "katze" in model.translate(["ein hund"])[0]


@pytest.mark.parametrize("settings", [{"no_repeat_ngram": 3}, {"min_length": 2}, {"unknown_penalty": 1.0}])
def test_what_insertion_does_not_keep_to_is_refused_by_name(toys, vocabularies, settings):
    model = toys.Model(size=12, seed=1)
    ((name, value),) = settings.items()
    with pytest.raises(UsageError, match=f"{name} {value}: is not for term_search insert"):
        translator(model, vocabularies, **settings)
    with pytest.raises(UsageError, match=name):
        translator(model, vocabularies).with_search(**settings)
    config = DecodingConfig.model_validate({"term_search": "insert", **settings})
    assert Translator([model], vocabularies, config).translate(["ein"]), "there are no terms"
    assert translator(model, vocabularies, term_search="beam", **settings).translate(["ein"])


def test_terms_begin_between_words():
    bounds = WordBounds(frozenset({6}), frozenset({7}), torch.zeros(0))
    assert between_words([5, 6, 5, 7, 5], 0, bounds) == [0, 2, 3, 5]
    assert between_words([5, 6, 5, 7, 5], 3, bounds) == [3, 5]
    assert between_words([], 0, bounds) == [0]
