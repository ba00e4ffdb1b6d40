"""What the text of a side says about itself: its language, and whether a tokenizer was there before."""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepwire.data.text.language_guess import KNOWN, guess_language
from deepwire.data.text.scripts import language_code

_CLOSING = ".,。，、،।"
"""Marks that no language puts a space before; French does before others."""
_ANY_CLOSING, _APART = re.compile(rf"[{_CLOSING}]"), re.compile(rf"\S [{_CLOSING}](?= |$)")
_MOSES = re.compile(r"&(?:apos|quot|amp|lt|gt|#\d+|bar);| @[-,./]@ ")
_PIECES = re.compile(r"\S@@ |(?:^| )\u2581\S")
_APART_SHARE, _MOSES_SHARE, _PIECES_SHARE = 0.5, 0.02, 0.1
_FEWEST_LINES = 10


def looks_like(lines: Sequence[str], labels: Sequence[str]) -> str | None:
    """The label whose language a text seems to be in, or the code of another language; None: cannot tell.

    It can be told more often between two languages than between all, so the labels come first.
    """
    codes = [language_code(label) for label in labels]
    known = [label for label, code in zip(labels, codes, strict=True) if code in KNOWN]
    others = [language for language in KNOWN if language not in codes]
    guess = guess_language(lines, labels) or guess_language(lines, [*known, *others])
    return None if guess is None else guess.language


def language_warnings(labels: tuple[str, str], sides: Sequence[Sequence[str]]) -> list[str]:
    """What is odd about the languages of source and target: swapped, or not those of the labels.

    Args:
        labels: The languages that the sides should be in.
        sides: Lines of the source and of the target.
    """
    if language_code(labels[0]) == language_code(labels[1]):
        return []
    languages = [looks_like(lines, labels) for lines in sides]
    if languages == [labels[1], labels[0]]:
        return [f"the two sides look swapped: the text of {labels[0]} is {labels[1]}, and the reverse"]
    return [
        f"the text of {label} looks like {language}"
        for label, language in zip(labels, languages, strict=True)
        if language is not None and language != label and language_code(label) in KNOWN
    ]


def tokenised_warnings(label: str, lines: Sequence[str]) -> list[str]:
    """Whether a text was tokenised or cut into subwords before: signs that raw text does not have."""
    if _share(lines, _PIECES) > _PIECES_SHARE:
        return [
            f"{label} looks cut into subwords already (`@@ ` or `\u2581`): give raw text, or choose "
            "data.vocabulary.type words"
        ]
    signs = []
    closing = [line for line in lines if _ANY_CLOSING.search(line)]
    if (share := _share(closing, _APART)) > _APART_SHARE:
        signs.append(f"a space before the comma or full stop in {share:.0%} of the lines that have one")
    if (share := _share(lines, _MOSES)) > _MOSES_SHARE:
        signs.append(f"`&apos;`, `@-@` or the like in {share:.0%} of the lines")
    if not signs:
        return []
    return [
        f"{label} looks tokenised already ({'; '.join(signs)}): give raw text, or translations come out so"
    ]


def _share(lines: Sequence[str], sign: re.Pattern[str]) -> float:
    if len(lines) < _FEWEST_LINES:
        return 0.0
    return sum(sign.search(line) is not None for line in lines) / len(lines)
