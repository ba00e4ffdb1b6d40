from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepwire.data.text.sentences import SentenceSplitter


def words(texts):
    return [len(text.split()) for text in texts]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "de",
            "Dr. Müller kam am 3. Mai an. Ja! Siehe Abb. 3.",
            ["Dr. Müller kam am 3. Mai an.", "Ja!", "Siehe Abb. 3."],
        ),
        (
            "en",
            "Dr. Smith came at 3 p.m. on Jan. 5. Is it e.g. here?",
            ["Dr. Smith came at 3 p.m. on Jan. 5.", "Is it e.g. here?"],
        ),
        ("zh", "今天天气很好。我们去吧！", ["今天天气很好。", "我们去吧！"]),
        ("pt_BR", "Um cão. Dois gatos.", ["Um cão.", "Dois gatos."]),
        ("", "One. Two.", ["One.", "Two."]),
    ],
)
def test_sentences_end_where_the_language_says(language, text, expected):
    assert list(SentenceSplitter(language).split(text).texts) == expected


def test_line_breaks_and_spaces_stay_and_what_has_no_word_is_not_translated():
    text = "  Erster Satz.  Zweiter!\r\n\n *** \n👍 \n- Ende"
    found = SentenceSplitter("de").split(text)
    assert found.texts == ("Erster Satz.", "Zweiter!", "- Ende")
    assert found.joined(["A.", "B!", "C"], "en") == "  A.  B!\r\n\n *** \n👍 \nC"


def test_between_sentences_there_is_what_the_target_language_has_there():
    assert SentenceSplitter("zh").split("很好。去吧！").joined(["Good.", "Go!"], "en") == "Good. Go!"
    assert (
        SentenceSplitter("en").split("Good. Go!\nNow.").joined(["好。", "去！", "今。"], "zh_CN")
        == "好。去！\n今。"
    )


def test_a_long_sentence_is_cut_at_the_best_place_near_its_middle_and_nothing_is_lost():
    text = "eins zwei drei, vier fünf; sechs sieben acht neun zehn elf zwölf."
    found = SentenceSplitter("de", words, 5).split(text)
    assert found.texts == ("eins zwei drei, vier fünf;", "sechs sieben acht", "neun zehn elf zwölf.")
    assert not found.too_long
    assert found.joined(found.texts) == text
    han = SentenceSplitter("zh", lambda texts: [len(text) for text in texts], 10).split("好" * 100)
    assert not han.too_long
    assert max(map(len, han.texts)) <= 10
    assert "".join(han.texts) == "好" * 100


def test_what_has_no_place_for_a_cut_is_reported_and_stays_whole():
    blob = "x" * 5000
    found = SentenceSplitter("de", lambda texts: [len(text) for text in texts], 20).split(
        f"Kurz. {blob} Ende."
    )
    assert [found.texts[place] for place in found.too_long] == [blob]
    assert found.joined(found.texts) == f"Kurz. {blob} Ende."


@given(st.text(), st.sampled_from(["de", "en", "zh", "ja", "", "xx"]))
def test_pieces_and_gaps_are_the_text(text, language):
    found = SentenceSplitter(language, lambda texts: [len(one) for one in texts], 7).split(text)
    parts = [*zip(found.gaps, found.texts, strict=False)]
    assert "".join(gap + one for gap, one in parts) + found.gaps[-1] == text
    assert all(len(one) <= 7 or place in found.too_long for place, one in enumerate(found.texts))


def test_a_sentence_of_many_characters_takes_no_time():
    found = SentenceSplitter("de", words, 100).split("wort " * 40_000)
    assert max(words(found.texts)) <= 100


@pytest.mark.parametrize(
    "piece", ["「はい。」「いいえ。」", '。"', "」‘「", 'He said "No." And left. ', "(a) b. [c] d! "]
)
def test_a_line_with_many_quotation_marks_is_not_given_to_the_rules_as_a_whole(piece, monkeypatch):
    """Their time grows with the square of the marks: one line could hold a server for hours."""
    import sentencex

    original, sizes = sentencex.segment, []

    def segment(language, text):
        sizes.append(sum(text.count(mark) for mark in set(piece) & set('「」‘"()[]')))
        return original(language, text)

    language = "en" if piece.isascii() else "ja"
    text = piece * 400
    expected = SentenceSplitter(language).split(piece * 10).texts
    monkeypatch.setattr(sentencex, "segment", segment)
    found = SentenceSplitter(language).split(text)
    assert max(sizes) <= 128
    assert len(sizes) > 5
    assert found.joined(found.texts, language) == text
    if len(expected) > 1:
        assert found.texts == expected * 40


@pytest.mark.parametrize("piece", ["!-", "?!)", "۔a", "wort ", "'", "!\u0301", "Ein Satz. "])
def test_a_long_line_is_not_given_to_the_rules_as_a_whole(piece, monkeypatch):
    """Their time grows with the square of the ends of sentences: a line of 150 kB held a server for 24 s."""
    import sentencex

    original, sizes = sentencex.segment, []

    def segment(language, text):
        sizes.append(len(text))
        return original(language, text)

    monkeypatch.setattr(sentencex, "segment", segment)
    text = piece * (40_000 // len(piece))
    found = SentenceSplitter("en").split(text)
    assert found.joined(found.texts) == text
    assert max(sizes) <= 4000
    assert len(sizes) > 10
