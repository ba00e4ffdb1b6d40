"""Models that have learned to read hints are told their terms in the source."""

from __future__ import annotations

import pytest

from deepwire.data.text.pairs import Pair
from deepwire.data.text.term_hints import HINT_BEGIN, HINT_END, HINT_MARKS
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import BpeConfig
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.lexical_constraints import ConstraintFinder
from deepwire.decoding.terminology import Term, Terminology
from deepwire.decoding.translator import Translator
from deepwire.errors import UsageError

TERMS = Terminology((Term("Hund", ("dog", "hound")), Term("Baum*", ("tree*",))))
PAIRS = [Pair(number, "Der Hund am Baum", "the dog at the tree", 0) for number in range(20)]


def learned(marks):
    config = BpeConfig(size=60, byte_fallback=False)
    return Vocabularies.learn_from_blocks(config, [PAIRS], marks)


def test_the_source_has_the_first_translation_behind_each_term():
    told = ConstraintFinder(learned(HINT_MARKS), terms=TERMS).of("Der Hund am Baum")
    assert told.text == f"Der Hund{HINT_BEGIN} dog{HINT_END} am Baum"  # of an open end nothing is known
    assert told.source == "Der Hund am Baum"
    assert ConstraintFinder(learned(()), terms=TERMS).of("Der Hund").text == "Der Hund"
    assert ConstraintFinder(learned(HINT_MARKS)).of("Der Hund").text == "Der Hund"


def test_hints_alone_are_for_models_that_read_them(toys):
    config = DecodingConfig(term_search="none", max_length_extra=4, max_length_ratio=0)
    with pytest.raises(UsageError, match=r"trained without data\.term_hints"):
        Translator([toys.Model(60)], learned(()), config, terms=TERMS)
    vocabularies = learned(HINT_MARKS)
    size = vocabularies.target.size
    free = [Translator([toys.Model(size, seed=seed)], vocabularies, config) for seed in range(4)]
    told = [Translator([toys.Model(size, seed=seed)], vocabularies, config, terms=TERMS) for seed in range(4)]
    lines = [f"Der Hund{HINT_BEGIN} dog{HINT_END} am Baum"]
    assert [one.translate(["Der Hund am Baum"]) for one in told] == [one.translate(lines) for one in free]
