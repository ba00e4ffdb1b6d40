from __future__ import annotations

import time
from collections import Counter

import pytest
from aligned_texts import aligned, answer
from hypothesis import given
from hypothesis import strategies as st

from deepwire.data.text.sentences import SentenceSplitter
from deepwire.serve.documents.document import Run
from deepwire.serve.documents.marked_text import ReplacedText, block_of
from deepwire.serve.documents.markup_projection import Matching, distribute, tokens_of
from deepwire.serve.documents.placeholders import items_of
from deepwire.serve.documents.translation_plan import TranslationPlan


def runs_of(*texts):
    """Runs; one in braces is fixed."""
    return [Run(text.strip("{}"), fixed=text.startswith("{")) for text in texts]


def cut(translation, runs, links=()):
    """The translation in pieces; links are of words."""
    source = "".join(run.text for run in runs)
    return distribute(Matching.of(translation, runs, aligned(source, translation, links)))


def test_each_run_gets_the_words_that_translate_it():
    runs = runs_of("Ein ", "roter", " Hund läuft auf der ", "grünen Wiese", ".")
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8)]
    found = cut("A red dog is running on the green meadow.", runs, links)
    assert found[:3] == ["A ", "red", " dog is running on the "]
    assert "".join(found[3:]) == "green meadow."


def test_a_fixed_run_keeps_its_text_and_takes_the_place_of_its_words():
    runs = runs_of("Rufe ", "{foo()}", " auf.")
    assert cut("Call foo () now.", runs) == ["Call ", "foo()", " now."]
    assert cut("Call it now.", runs)[1] == "foo()"


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        ("You have {count} new messages.", "You have {count} new messages."),
        ("You have { Count } new messages.", "You have {count} new messages."),
        ("You have {nombre} new messages.", "You have {count} new messages."),
        ("New messages: {count}", "New messages: {count}"),
    ],
)
@pytest.mark.parametrize("links", [None, [], [(0, 0), (1, 1), (1, 2), (1, 3), (2, 2), (3, 1)]])
def test_a_placeholder_is_there_once_and_takes_no_word(translation, expected, links):
    assert translated("Sie haben {count} neue Nachrichten.", translation, links) == expected


def translated(source, translation, links):
    """The translation of a message with placeholders; with links of words, or none."""
    message = ReplacedText(source, [block_of(source, *items_of(source), trimmed=False)])
    plan = TranslationPlan(message.units, SentenceSplitter("de"))
    if not plan.texts:  # there are placeholders alone
        return source
    count = len(translation.split())
    links = None if links is None else [link for link in links if link[1] < count]
    alignment = None if links is None else aligned(plan.texts[0], translation, links)
    return message.text_with(plan.translated_units([answer(translation, alignment)]))


PARTS = ["{a}", "%s", "<x>", "ein", "Hund", "und", "Katze", ",", "3"]
TAGS = ["<b>", "</b>", "<img>", "<y/>"]


@given(
    st.lists(st.sampled_from([*PARTS, *TAGS]), min_size=1, max_size=8),
    st.lists(st.sampled_from([*PARTS, "{b}"]), max_size=8),
    st.none() | st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12),
)
def test_no_word_beside_a_placeholder_is_lost(source, translation, links):
    shown = [part for part in source if part not in TAGS]
    links = links and [link for link in links if link[0] < len(shown)]
    found = translated(" ".join(source), " ".join(translation), links)
    words = Counter(word for word in translation if word.isalnum() or word == ",")
    if any(word.isalpha() for word in source):
        assert not words - Counter(tokens_of(found))
    before, said, after = (
        Counter({part: text.count(part) for part in [*PARTS[:3], *TAGS]})
        for text in (" ".join(source), " ".join(translation), found)
    )
    assert not before - after
    if before == said:
        assert before == after, "one is there twice"


@given(st.text(), st.lists(st.text(), min_size=1, max_size=6), st.integers(0, 6))
def test_no_word_of_the_translation_is_lost(translation, texts, fixed):
    runs = [Run(text, place == fixed) for place, text in enumerate(texts)]
    found = distribute(Matching.of(translation, runs, None))
    assert len(found) == len(runs)
    assert fixed >= len(runs) or found[fixed] == texts[fixed]
    if fixed >= len(runs) and any(text.strip() for text in texts):
        assert "".join("".join(found).split()) == "".join(translation.split())


def test_a_sentence_of_many_runs_is_put_together_in_linear_time():
    texts = [f"wort{number} " for number in range(20_000)]
    begun = time.process_time()
    found = distribute(Matching.of("".join(texts).upper(), runs_of(*texts), None))
    assert time.process_time() - begun < 5, "it took minutes, and gigabytes"
    assert "".join(found).split() == "".join(texts).upper().split()


@pytest.mark.parametrize("text", ["漢字", "かな", "กข"])
def test_writing_without_spaces_is_cut_at_each_letter(text):
    assert tokens_of(text) == list(text)
