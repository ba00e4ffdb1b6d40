from __future__ import annotations

from itertools import chain, pairwise

import pytest
import torch

from deepwire.data.vocabulary import BOS, EOS
from deepwire.decoding.constrained_search import constrained_search
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.phrases import Phrase, WordBounds
from deepwire.decoding.search import Batch

SIZE = 12


def bounds(inside=(), opened=()):
    return WordBounds(frozenset(inside), frozenset(opened))


def search(toys, phrases, *, own=None, limit=8, seed=0, model=None, **config):
    sources = toys.random_sources(len(phrases), SIZE, seed=seed)
    return constrained_search(
        model or toys.Model(SIZE, seed=seed),
        Batch(toys.padded(sources), [limit] * len(phrases)),
        DecodingConfig.model_validate({"beam": 4, **config}),
        phrases,
        own or bounds(),
    )


def open_phrase(*forms):
    """One whose last word may go on, whichever form it has."""
    return Phrase(forms, frozenset(range(len(forms))))


def has(ids, form):
    return any(tuple(ids[place : place + len(form)]) == tuple(form) for place in range(len(ids)))


@pytest.mark.parametrize("seed", range(6))
def test_every_translation_has_all_phrases(toys, seed):
    phrases = [
        [open_phrase((5, 6, 7))],
        [],
        [open_phrase((8,)), open_phrase((4, 9), (9, 4))],
        [open_phrase(tuple(range(4, 12)) * 2)],
    ]
    found = search(toys, phrases, seed=seed, n_best=2)
    for own, hypotheses in zip(phrases, found, strict=True):
        assert hypotheses
        assert all(any(has(one.ids, form) for form in phrase.forms) for phrase in own for one in hypotheses)
        assert [one.score for one in hypotheses] == sorted((one.score for one in hypotheses), reverse=True)


def test_scores_are_those_of_the_model(toys):
    model, sources = toys.Model(SIZE), toys.random_sources(3, SIZE)
    found = search(toys, [[Phrase(((5, 6),))], [Phrase(((7,),))], []], length_penalty=0)
    for source, (best, *_) in zip(sources, found, strict=True):
        assert best.score == pytest.approx(toys.log_probability(model, source, best.ids), abs=1e-4)


def test_a_wide_beam_finds_the_best_of_all_translations(toys):
    """Of all translations of up to three subwords that have the phrase, it is the most probable."""
    size, longest = 8, 3
    model, (source,) = toys.Model(size), toys.random_sources(1, size)
    mask = WordBounds(frozenset(), frozenset())
    config = DecodingConfig(beam=64, length_penalty=0, min_length=0)
    (found,) = constrained_search(
        model, Batch(toys.padded([source]), [longest - 1]), config, [[open_phrase((5,))]], mask
    )
    every = [ids for ids in toys.every_translation(list(range(4, size)), longest) if 5 in ids]
    expected = max(every, key=lambda ids: toys.log_probability(model, source, ids))
    assert found[0].ids == expected


def test_a_whole_word_ends_with_the_phrase(toys):
    inside = (4, 5, 6, 7)
    for seed in range(5):
        for hypotheses in search(toys, [[Phrase(((8, 9),))]] * 4, own=bounds(inside=inside), seed=seed):
            ids = hypotheses[0].ids
            following = [ids[at + 2] for at in range(len(ids) - 2) if ids[at : at + 2] == (8, 9)]
            assert not all(one in inside for one in following) or not following


@pytest.mark.parametrize("opened", [5, 8])
def test_a_word_goes_on_behind_the_forms_that_leave_it_open(toys, opened):
    """A model that goes on with 9 in the word of either form, and hardly writes these by itself."""
    own = bounds(inside=(9,))

    class GoesOn(toys.Model):  # type: ignore[name-defined]  # the class comes with a fixture
        def step(self, tokens, state):
            log_probs, state = super().step(tokens, state)
            log_probs[:, [5, 8]] = -30.0
            log_probs[(tokens == 5) | (tokens == 8), 9] = 1.0
            return log_probs, state

    phrases = [[Phrase(((5,), (8,)), frozenset({(5, 8).index(opened)}))]] * 8
    found = [search(toys, phrases, own=own, model=GoesOn(SIZE, seed=seed), n_best=4) for seed in range(4)]
    pairs = {
        pair
        for hypothesis in chain.from_iterable(chain.from_iterable(found))
        for pair in pairwise((*hypothesis.ids, EOS))
    }
    assert {form for form, _ in pairs} >= {5, 8}
    assert {form for form, after in pairs if after == 9 and form in (5, 8)} == {opened}


def test_what_has_been_read_counts_in_score_and_translation(toys):
    """A search behind a beginning gives what a model gives that reads the beginning by itself."""
    source, begin = toys.random_sources(1, SIZE)[0], (5, 6, 9)
    model = toys.Model(SIZE)
    read = toys.log_probability(model, source, begin) - float(
        model.log_probs(torch.tensor([source]), torch.tensor([[BOS, *begin]]))[0, -1, EOS]
    )
    config = DecodingConfig(beam=4, length_penalty=1, length_penalty_form="average")
    phrases = [[open_phrase((8,))]]
    batch = Batch(toys.padded([source]), [6], prompts=[[BOS, *begin]], context_ids=[begin])
    ((best, *_),) = constrained_search(model, batch, config, phrases, bounds(), [read])
    assert best.ids[:3] == begin
    assert 8 in best.ids[3:]
    total = toys.log_probability(model, source, best.ids)
    assert best.log_probability == pytest.approx(total, abs=1e-4)
    assert best.score == pytest.approx(total / (len(best.ids) + 1), abs=1e-4)


def test_equal_phrases_are_all_there(toys):
    for hypotheses in search(toys, [[Phrase(((6,),))] * 3, [Phrase(((7, 8),))] * 2] * 2):
        ids = hypotheses[0].ids
        assert ids.count(6) >= 3 or sum(pair == (7, 8) for pair in pairwise(ids)) >= 2
