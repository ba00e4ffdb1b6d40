from __future__ import annotations

import time

import pytest

from deepwire.data.text.casing import OrdinaryCase, title_case

FREQUENT = (
    "press the button now and open file for of a Paris USB Haus Waldrand Knopf den roten drücken sie das am"
)


def costs(words):
    """One piece for a word of the vocabulary, else one for each letter."""
    return [(0, 1 if word in FREQUENT.split() else len(word)) for word in words]


@pytest.fixture
def ordinary():
    return OrdinaryCase(costs)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("PRESS THE BUTTON", "Press the button"),
        ("DRÜCKEN SIE DEN ROTEN KNOPF!", "Drücken sie den roten Knopf!"),
        ("NOW IN PARIS: PRESS. OPEN THE FILE", "Now in Paris: press. Open the file"),
        ("PRESS %s OR <b>THE</b> {NAME} AT HTTPS://A.B/C", "Press %s or <b>the</b> {NAME} at HTTPS://A.B/C"),
        ("OPEN THE USB FILE, MP3 OR PDF, IN THE U.S.A.", "Open the USB file, MP3 or PDF, in the U.S.A."),
        ("ΑΝΟΙΞΕ ΤΟ", "Ανοιξε το"),
    ],
)
def test_capitals_become_a_sentence(ordinary, line, text):
    assert ordinary.of(line).text == text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("Open File", "Open file"),
        ("Press the Button and Open a File for {Name}", "Press the button and open a file for {Name}"),
        ("The Paris Button", "The Paris button"),
        ("Drücken Sie Den Roten Knopf", "Drücken sie den roten Knopf"),
    ],
)
def test_title_case_becomes_a_sentence(ordinary, line, text):
    found = ordinary.of(line)
    assert (found.text, found.title) == (text, True)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Press the button",
        "Paris",
        "Angela Merkel",
        "USB",
        "A USB PDF",
        "中文 字",
    ],
)
def test_other_lines_stay(ordinary, line):
    assert ordinary.of(line) is None


def test_translations_get_the_case_of_the_line(ordinary):
    line = ordinary.of("PRESS THE USB BUTTON FOR %s AT HTTP://A.DE")
    assert line.restored("Für %s USB-Straße auf http://a.de drücken: iPhone", "de", ["iPhone"]) == (
        "FÜR %s USB-STRASSE AUF http://a.de DRÜCKEN: iPhone"
    )
    assert line.restored("bir iki", "tr") == "BİR İKİ"
    line = ordinary.of("Press The Button For {name}")
    assert line.restored("the end of the line: {name} and iOS up to", "en", ["iOS"]) == (
        "The End of the Line: {name} and iOS Up To"
    )
    # Other languages have no such case.
    assert line.restored("Das Ende der kleinen Linie", "de") == "Das Ende der kleinen Linie"


def test_a_long_word_is_read_in_linear_time(ordinary):
    begun = time.perf_counter()
    ordinary.of("A" * 200_000)
    assert time.perf_counter() - begun < 20, "it took minutes"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("the 20th century on the 3rd of may", "the 20th Century on the 3rd of May"),
        ("the 1990s and the 1990's 5km run", "the 1990s and the 1990's 5km Run"),
        ("ma\u0308dchen u\u0308ber ko\u0308ln", "Ma\u0308dchen U\u0308ber Ko\u0308ln"),
        ("ọ̀pọ̀lọpọ̀ ènìyàn g̃uarani", "Ọ̀pọ̀lọpọ̀ Ènìyàn G̃uarani"),
        ("глава 5-й части 1990-х, den 3:e maj", "Глава 5-й Части 1990-х, Den 3:e Maj"),
        ("{n}th {name}'s house, <b>house</b>", "{n}th {name}'s House, <b>House</b>"),
        ("don’t o'neill mcDonald well-known", "Don’t O'neill McDonald Well-known"),
        ("col·legi ǆep ßa ŉdag ფული हिन्दी", "Col·legi ǅep Ssa ʼNdag ფული हिन्दी"),
        ("e\u0301 a\u0301b c\u0301d snake_case b2b", "E\u0301 A\u0301b C\u0301d Snake_case B2b"),
    ],
)
def test_capitals_of_titles_are_at_the_beginning_of_words(text, title):
    assert title_case(text) == title
