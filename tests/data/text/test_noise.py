"""What noise does to a line, and how often."""

from __future__ import annotations

import pytest

from deepwire.data.data_config import TextNoiseConfig
from deepwire.data.text.noise import LineNoise, typo

LINE = "Der Hund läuft am Montag zu 17 Häusern, siehe https://example.org/haus."


def noise(languages=("de", "en"), **settings):
    return LineNoise(TextNoiseConfig(**settings), [languages])


def test_capitals_are_of_both_sides_and_leave_placeholders():
    made = noise(upper=1)
    line = made.of(LINE, 3)
    assert line.source == "DER HUND LÄUFT AM MONTAG ZU 17 HÄUSERN, SIEHE https://example.org/haus."
    assert made.target(line, "A dog: {name}.") == "A DOG: {name}."
    alone = noise(upper=1, upper_target=False)
    assert alone.target(alone.of(LINE, 3), "A dog.") == "A dog."
    assert noise(("tr", "en"), upper=1).of("iyi", 1).source == "İYİ"


def test_title_case_and_missing_marks_are_of_the_source():
    made = noise(title=1, drop_final_punctuation=1)
    line = made.of("er sagte: „ja!“", 1)
    assert line.source == "Er Sagte: „Ja“"
    assert made.target(line, "he said so!") == "he said so!"
    assert noise(drop_final_punctuation=1).of("...", 1) is None


def test_typos_change_one_letter_behind_the_first():
    kinds = set()
    for kind, place in [(kind / 3, place / 10) for kind in range(3) for place in range(10)]:
        word = typo("abcd", iter([kind + 0.01, place]).__next__)
        assert word[0] == "a"
        assert set(word) <= set("abcd")
        kinds.add((len(word), word))
    assert {length for length, _ in kinds} == {3, 4, 5}
    assert len(kinds) == 2 + 3 + 3


def test_each_number_gives_its_own_noise_and_always_the_same():
    made = noise(typos=0.3, upper=0.1, title=0.1, drop_final_punctuation=0.1)
    first = [made.of(LINE, seed) for seed in range(300)]
    assert first == [made.of(LINE, seed) for seed in range(300)]
    assert len(set(first)) > 200
    assert all("https://example.org/haus" in line.source for line in first if line)


def test_probabilities_are_kept():
    made = noise(upper=0.2, title=0.3, drop_final_punctuation=0.5)
    lines = [line.source if (line := made.of("ein hund.", seed)) else "ein hund." for seed in range(4000)]
    shares = [sum(each in wanted for each in lines) / len(lines) for wanted in (
        ("EIN HUND.", "EIN HUND"), ("Ein Hund.", "Ein Hund"), ("ein hund", "EIN HUND", "Ein Hund"),
    )]  # fmt: skip
    assert shares == pytest.approx([0.2, 0.3, 0.5], abs=0.03)
    words = noise(typos=0.1)
    found = [words.of("hundert", seed) for seed in range(4000)]
    # A swap of equal letters would be none; this word has no such neighbours.
    assert sum(line is not None for line in found) / 4000 == pytest.approx(0.1, abs=0.02)
