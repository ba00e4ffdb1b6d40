from __future__ import annotations

import time

import pytest

from deepwire.data.text.casing import OrdinaryCase

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
    "line",
    [
        "",
        "Press the button",
        "Press the Button and Open a File",
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


def test_a_long_word_is_read_in_linear_time(ordinary):
    begun = time.perf_counter()
    ordinary.of("A" * 200_000)
    assert time.perf_counter() - begun < 20, "it took minutes"
