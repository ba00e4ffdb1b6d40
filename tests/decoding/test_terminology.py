from __future__ import annotations

import pytest

from deepwire.decoding.terms import Term, Terminology
from deepwire.errors import DataError


def terms(tmp_path, text):
    path = tmp_path / "terms.tsv"
    path.write_text(text)
    return Terminology.read(path, print)


def found(terminology, text):
    return [term.source for term in terminology.find(text)]


def test_terms_are_found_as_words_longest_first(tmp_path):
    tool = terms(tmp_path, "# a comment\nHund\tdog\n\nHund und Katze\tcat and dog\nFlug*\tflight*\nX\tex\n")
    assert found(tool, "Der Hund, ein HUND und Katze. Hunde. X") == ["Hund", "Hund und Katze", "X"]
    assert found(tool, "Flughafen, Abflug, flug") == ["Flug*", "Flug*"]


def test_terms_of_writing_without_spaces(tmp_path):
    assert found(terms(tmp_path, "犬\tdog\n"), "この犬は大きい") == ["犬"]


@pytest.mark.parametrize(
    ("term", "text", "count"),
    [
        (Term("Hund", ("dog", "hound")), "Dog, hound and dogs", 2),
        (Term("Hund", ("dog*",)), "Dogs and hotdogs", 1),
        (Term("USA", ("US",)), "us US", 1),
        (Term("Hund", ("dog", "hound*")), "two dogs", 0),
        (Term("Hund", ("dog", "hound*")), "a dog, two Hounds", 2),
        (Term("Hund", ("dog", "dog*")), "two dogs", 1),
    ],
)
def test_terms_in_a_translation(term, text, count):
    assert term.count(text) == count


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Hund dog\n", "terms.tsv:1: no term and translation"),
        ("Hund\tdog\tmore\n", "terms.tsv:1: no term"),
        ("Hund\t\n", "terms.tsv:1: no term"),
        (".NET\t.NET\n", "terms.tsv:1: '.NET' does not begin with a letter or digit"),
        ("Hund\tdog\n\nhund\thound\n", "terms.tsv:3: 'hund' stands in line 1"),
        ("a\tb\nStraßen*bahn\ttram\n", r"terms.tsv:2: 'Straßen\*bahn' has a \* that is not at the end of a"),
        ("*bahn\ttram\n", r"terms.tsv:1: '\*bahn' does not begin with"),
        ("ein Hund**\tdog\n", r"terms.tsv:1: 'ein Hund\*\*' has a \* that is not at the end of a word"),
        ("\n# nothing\n", "has no terms"),
    ],
)
def test_wrong_files(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        terms(tmp_path, text)
