"""Terms that a search prefers: they come where the model nearly likes them, in one search."""

from __future__ import annotations

import pytest
import torch

from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import EOS, Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.phrases import BONUS, Phrase
from deepwire.decoding.search import Batch, generate
from deepwire.decoding.terms import Term, Terminology
from deepwire.decoding.translator import Translator

ONE, OTHER, WANTED, NEXT, SIZE = 4, 5, 6, 7, 9


class State:
    def expand(self, _width):
        return self

    def reorder(self, _rows):
        return self

    def keep(self, _sentences):
        return self


class Fixed:
    """Writes ONE OTHER and ends; WANTED is so much less probable than each, NEXT not likely at all."""

    def __init__(self, gaps, end_after=2):
        self.gaps, self.end_after = gaps, end_after

    def start(self, source, *, languages=None, prompt=None):
        self.step_number = 0
        return State()

    def step(self, tokens, state):
        values = torch.full((len(tokens), SIZE), -30.0)
        likely = (ONE, OTHER)[self.step_number] if self.step_number < self.end_after else EOS
        values[:, likely] = 0.0
        values[:, WANTED] = -self.gaps[min(self.step_number, len(self.gaps) - 1)]
        values[:, NEXT] = -2.0 * (tokens != WANTED).float() * 10 - 2.0
        self.step_number += 1
        return values, state


def found(gaps, phrases, beam=1):
    config = DecodingConfig(beam=beam, length_penalty=0.0)
    batch = Batch(torch.tensor([[ONE, EOS]]), [5], bonus_phrases=[phrases])
    ((best, *_),) = generate(Fixed(gaps), batch, config)
    return best


@pytest.mark.parametrize("beam", [1, 3])
def test_a_phrase_comes_where_it_is_nearly_as_good_as_the_best_subword(beam):
    wanted = [Phrase(((WANTED,),))]
    assert found([20.0, 2.0, 20.0], wanted, beam).ids[1] == WANTED
    assert WANTED not in found([20.0, 2.0, 20.0], [], beam).ids
    # Beyond what a preference is worth, and beyond where a phrase may begin at all:
    assert WANTED not in found([20.0, BONUS + 0.5, 20.0], wanted, 1).ids
    assert WANTED not in found([20.0], wanted, beam).ids


def test_a_phrase_is_preferred_as_often_as_it_is_wanted():
    likely = [1.0, 1.0, 20.0]
    assert found(likely, [Phrase(((WANTED,),))]).ids[:2] == (WANTED, OTHER)
    assert found(likely, [Phrase(((WANTED,),))] * 2).ids[:2] == (WANTED, WANTED)


def test_a_way_goes_on_behind_its_beginning():
    assert found([1.0, 20.0, 20.0], [Phrase(((WANTED, NEXT),))]).ids[:2] == (WANTED, NEXT)
    assert found([1.0, 20.0, 20.0], [Phrase(((WANTED,),))]).ids[:2] == (WANTED, OTHER)
    # One of two forms is enough: the other is not preferred any more.
    both = [Phrase(((WANTED,), (OTHER,)))]
    assert found([1.0, 1.0, 20.0], both).ids[:2] == (WANTED, OTHER)


def test_a_translation_with_its_phrases_has_the_models_own_score():
    best = found([20.0, 2.0, 20.0], [Phrase(((WANTED,),))])
    assert best.log_probability == pytest.approx(-2.0)
    # What lacks a phrase pays for it.
    assert found([20.0], [Phrase(((WANTED,),))]).log_probability == pytest.approx(-BONUS)


WORDS = ["ein", "zwei", "drei", "hund", "katze", "haus"]


@pytest.mark.parametrize("settings", [{}, {"beam": 1}, {"n_best": 2}, {"guards": True}])
def test_more_terms_without_a_second_search(toys, monkeypatch, settings):
    pairs = [Pair(line, " ".join(WORDS), " ".join(WORDS), 0) for line in range(3)]
    vocabularies = Vocabularies.learn_from_blocks(WordsConfig(), [pairs])
    terms = Terminology((Term("hund", ("katze",)), Term("haus", ("drei",))))
    lines = ["ein hund", "zwei haus hund", "haus ein ein", "hund zwei drei", "ein"]
    shared = {"max_length_extra": 8, "beam": 3, **settings}

    def refuse(*_args):
        raise AssertionError("searched")

    def kept(model):
        texts = [one.candidates[0].text for one in model.translations(lines)]
        return sum(
            term.count(text) > 0 for line, text in zip(lines, texts, strict=True) for term in terms.find(line)
        )

    before = after = 0
    for seed in range(4):
        model = toys.Model(size=10, seed=seed)
        before += kept(Translator([model], vocabularies, DecodingConfig(**shared)))
        monkeypatch.setattr("deepwire.decoding.second_search.constrained_search", refuse)
        prefer = DecodingConfig(**shared, term_search="prefer")
        after += kept(Translator([model], vocabularies, prefer, terms=terms))
    assert after > before
