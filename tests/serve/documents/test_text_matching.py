"""Translations cut into tokens."""

from __future__ import annotations

import pytest

from deepwire.serve.documents.text_matching import tokens_of


@pytest.mark.parametrize("text", ["漢字", "かな", "กข", "ກຂ", "ကခ", "កខ"])
def test_writing_without_spaces_is_cut_at_each_letter(text):
    assert tokens_of(text) == list(text)


def test_words_signs_and_spaces_are_tokens():
    assert tokens_of("Ein Hund, 한국어  ja.") == ["Ein", " ", "Hund", ",", " ", "한국어", "  ", "ja", "."]
