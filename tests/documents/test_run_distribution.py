from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deepwire.documents.document import Run
from deepwire.documents.run_distribution import distribute


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


def test_runs_without_text_and_spaces_between_runs():
    runs = runs_of("mit ", "{}", "fettem Text", "{}", " ", "{}", "Ende")
    found = distribute("with bold text end", runs, ["with", "", "bold text", "", "", "", "end"])
    assert [found[1], found[3], found[5]] == ["", "", ""]
    assert "".join(found) == "with bold text end"


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
