from __future__ import annotations

import time
from collections import Counter

import pytest
from aligned_texts import aligned
from hypothesis import given
from hypothesis import strategies as st

from deepwire.data.text.sentences import SentenceSplitter
from deepwire.serve.documents.document import Run
from deepwire.serve.documents.formats.inline_elements import block_of
from deepwire.serve.documents.formats.placeholders import items_of
from deepwire.serve.documents.formats.replaced_text import ReplacedText
from deepwire.serve.documents.run_distribution import distribute
from deepwire.serve.documents.text_matching import tokens_of
from deepwire.serve.documents.translation_plan import TranslationPlan


def runs_of(*texts):
    """Runs; one in braces is fixed."""
    return [Run(text.strip("{}"), fixed=text.startswith("{")) for text in texts]


def test_each_run_gets_the_words_that_translate_it():
    runs = runs_of("Ein ", "roter", " Hund läuft auf der ", "grünen Wiese", ".")
    alone = ["A", "red", "dog runs on the", "green meadow", ""]
    found = distribute("A red dog is running on the green meadow.", runs, alone)
    assert found == ["A ", "red", " dog is running on the ", "green meadow", "."]


def test_the_order_of_words_may_differ():
    alone = ["la", "rouge", "maison au bord du lac"]
    found = distribute("la maison rouge au bord du lac", runs_of("das ", "rote", " Haus am See"), alone)
    assert "rouge" in found[1]
    assert found[2] == " au bord du lac"
    found = distribute("la maison rouge", runs_of("das ", "rote", " Haus"), alone)
    assert "".join(found) == "la maison rouge"


def test_a_fixed_run_keeps_its_text_and_takes_the_place_of_its_words():
    runs = runs_of("Rufe ", "{foo()}", " auf.")
    assert distribute("Call foo () now.", runs, ["Call", "", "now."]) == ["Call ", "foo()", " now."]
    assert distribute("Call it now.", runs, ["Call", "", "now."])[1] == "foo()"


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
    plan = TranslationPlan(message.units, SentenceSplitter("de"), aligned=links is not None)
    if not plan.texts:  # there are placeholders alone
        return source
    count = len(translation.split())
    texts = [translation, *plan.texts[1:]]
    links = None if links is None else [link for link in links if link[1] < count]
    alignments = [] if links is None else [aligned(plan.texts[0], translation, links)]
    return message.text_with(plan.finished(texts, alignments))


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


def test_runs_without_text_and_spaces_between_runs():
    runs = runs_of("mit ", "{}", "fettem Text", "{}", " ", "{}", "Ende")
    found = distribute("with bold text end", runs, ["with", "", "bold text", "", "", "", "end"])
    assert [found[1], found[3], found[5]] == ["", "", ""]
    assert "".join(found) == "with bold text end"
    found = distribute("one two", runs_of("eins ", "{}", " zwei"), ["one", "", "two"])
    assert found == ["one ", "", " two"]


def test_a_run_without_a_translation_leaves_its_space():
    runs = runs_of("Sie stehen ", "auf der Straße", " und ", "reden", ".")
    alone = ["They stand", "on the street", "and", "talking", ""]
    found = distribute("They stand on the street talking.", runs, alone)
    assert found == ["They stand ", "on the street", " ", "talking", "."]


@given(st.text(), st.lists(st.text(), min_size=1, max_size=6), st.integers(0, 6))
def test_no_word_of_the_translation_is_lost(translation, texts, fixed):
    runs = [Run(text, place == fixed) for place, text in enumerate(texts)]
    found = distribute(translation, runs, [""] * len(runs))
    assert len(found) == len(runs)
    assert fixed >= len(runs) or found[fixed] == texts[fixed]
    if fixed >= len(runs) and any(text.strip() for text in texts):
        assert "".join("".join(found).split()) == "".join(translation.split())


def test_a_sentence_of_many_runs_is_put_together_in_linear_time():
    texts = [f"wort{number} " for number in range(20_000)]
    begun = time.process_time()
    found = distribute("".join(texts).upper(), runs_of(*texts), [""] * len(texts))
    assert time.process_time() - begun < 5, "it took minutes, and gigabytes"
    assert "".join(found).split() == "".join(texts).upper().split()
