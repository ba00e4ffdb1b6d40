from __future__ import annotations

import random
from itertools import count, islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.translator import Translator
from deepwire.errors import UsageError

LINES = ["abc", "", "hgfedcba", "a", "   ", "bb c d", "\t", "cafe"]


def translator(toys, warnings=None, model=None, size=12, **config):
    return Translator(
        [model or toys.Model(size=size)],
        toys.vocabularies(size),
        DecodingConfig.model_validate({"max_length_ratio": 1, "max_length_extra": 3, **config}),
        warn=(warnings if warnings is not None else []).append,
    )


def test_one_translation_for_each_line_in_order(toys):
    tool = translator(toys)
    together = tool.translate(LINES)
    assert len(together) == len(LINES)
    assert together == [tool.translate([line])[0] for line in LINES]
    assert [text == "" for text in together] == [not line.strip() for line in LINES]


@pytest.mark.parametrize("beam", [1, 3])
def test_several_threads_translate_as_one_does(toys, beam):
    before, lines = torch.get_num_threads(), LINES * 5
    try:
        torch.set_num_threads(1)
        one = list(translator(toys, beam=beam, batch_tokens=8).translations(lines))
        torch.set_num_threads(3)
        assert list(translator(toys, beam=beam, batch_tokens=8).translations(lines)) == one
    finally:
        torch.set_num_threads(before)


def test_a_line_stays_one_line_whatever_the_vocabulary_can_spell(toys, monkeypatch):
    """Vocabularies with all bytes as pieces can spell line breaks, and models that sample do."""
    tool = translator(toys, beam=2, n_best=2)
    vocabulary = type(tool.vocabularies.target)
    for spelt, expected in [("\n", " "), ("\r", " "), ("\r\n", " "), ("\0", " "), ("\u2028", "\u2028")]:
        monkeypatch.setattr(vocabulary, "_decode_ids", lambda self, ids, middle=spelt: f"a{middle}b")
        (answer,) = tool.translations(["abc"])
        assert [one.text for one in answer.candidates] == [f"a{expected}b"] * 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [("abc", "not texts but str"), (b"abc", "bytes"), (["a", None], "line 2: must be a text")],
)
def test_what_is_no_list_of_texts_is_refused(toys, lines, message):
    with pytest.raises(UsageError, match=message):
        translator(toys).translate(lines)


@settings(max_examples=20, deadline=None)
@given(
    lines=st.lists(st.text("abcdefgh ", max_size=12), max_size=16),
    batch_tokens=st.sampled_from([1, 20, 100, 10_000]),
    window=st.sampled_from([1, 3, 1000]),
    beam=st.sampled_from([1, 3]),
)
def test_batches_and_windows_change_nothing(toys, lines, batch_tokens, window, beam):
    expected = translator(toys, beam=beam).translate(lines)
    tool = translator(toys, beam=beam, batch_tokens=batch_tokens, window=window)
    order = random.Random(0).sample(range(len(lines)), len(lines))
    assert tool.translate([lines[i] for i in order]) == [expected[i] for i in order]


def test_samples_do_not_depend_on_batches(toys):
    sampling = {"sampling": {"top_p": 0.9}, "n_best": 2}
    expected = translator(toys, **sampling).translate(LINES)
    assert translator(toys, batch_tokens=1, window=2, **sampling).translate(LINES) == expected


def test_an_endless_input_is_read_window_by_window(toys):
    read = []

    def endless():
        for number in count():
            read.append(number)
            yield "abc"

    answers = translator(toys, window=5).translations(endless())
    assert [answer.line for answer in islice(answers, 7)] == [1, 2, 3, 4, 5, 6, 7]
    assert len(read) == 10


def test_window_one_answers_before_the_next_line_is_read(toys):
    answered: list[str] = []

    def lines():
        yield "abc"
        assert answered == ["first"]
        yield "cba"

    for _ in translator(toys).translations(lines(), window=1):
        answered.append("first")
    assert len(answered) == 2


def test_n_best_with_scores_and_tokens(toys):
    answer = next(iter(translator(toys, beam=5, n_best=4).translations(["abcde"])))
    assert len(answer.candidates) == 4
    assert answer.text == answer.candidates[0].text
    for candidate in answer.candidates:
        assert "".join(candidate.tokens) == candidate.text
        assert candidate.log_probability <= candidate.score <= 0
    assert len({candidate.tokens for candidate in answer.candidates}) == 4


def test_prefixes(toys):
    tool = translator(toys)
    texts = tool.translate(["abc", "def", ""], ["hh", "", "b"])
    assert texts[0].startswith("hh")
    assert texts[1:] == [tool.translate(["def"])[0], ""]
    for wrong, message in (
        (["hh"], "prefixes: 1 for 2 texts"),
        ("hh", "not prefixes but str"),
    ):
        with pytest.raises(UsageError, match=message):
            tool.translate(["abc", "def"], wrong)


def test_a_word_too_long_stays_and_is_named(toys):
    warnings: list[str] = []
    tool = translator(toys, warnings, max_source_length=5)
    first, second, third = tool.translate(["abc", "ab abcdefgh", "cafe"])
    abc, ab, cafe = tool.translate(["abc", "ab", "cafe"])
    assert [first, second, third] == [abc, f"{ab} abcdefgh", cafe]
    assert warnings[0] == "line 2: a word too long for the model stays as it is: abcdefgh"


def test_a_line_of_a_million_characters(toys):
    warnings: list[str] = []
    tool = translator(toys, warnings, max_source_length=20, beam=1)
    assert tool.translate(["abc", "ab" * 500_000])[1] == "ab" * 500_000
    assert len(warnings) == 1


def test_each_line_of_a_text_is_translated_and_the_line_breaks_are_kept(toys):
    warnings: list[str] = []
    tool = translator(toys, warnings)
    ab, cd, one, e = tool.translate(["ab", "cd", "a\u2028b", "e"], ["b", "", "", ""])
    assert len({ab, cd}) == 2
    texts = ["ab\ncd", "ab\r\n\ncd", "a\u2028b", "e\n", "\n"]
    assert tool.translate(texts, ["b", "b", "", "", ""]) == [f"{ab}\n{cd}", f"{ab}\r\n\n{cd}", one, e, ""]
    assert tool.translate(iter(texts), ["b", "b", "", "", ""])[0] == f"{ab}\n{cd}"
    assert warnings == []
