"""Noise in training text: lines in capitals or Title Case, typos, marks that are missing at the end.

What happens to a line is a function of the line and one number, so that a run that is continued reads what it
would have read. Addresses, tags, variables and other placeholders stay as they are.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from deepwire.data.data_config import DataConfig, TextNoiseConfig
from deepwire.data.text.casing import outside_placeholders, title_case, upper_case

_WORD = re.compile(r"[^\W\d_]{3,}")
"""Words of three letters or more: shorter ones would become others."""
_FINAL_MARKS = re.compile(r"\s*[.!?…。！？؟।]+(?=[\"'»«”“’‘)\]]*\s*\Z)")

Draw = Callable[[], float]
"""Gives numbers from 0 to below 1, one after the other."""


class NoisyLine(NamedTuple):
    """A source line with noise, and whether it is in capitals."""

    source: str
    in_capitals: bool


@dataclass(frozen=True)
class LineNoise:
    """Draws the noise of lines; source and target language of each direction say how i is capitalised."""

    config: TextNoiseConfig
    languages: Sequence[tuple[str, str]]

    def of(self, source: str, seed: int, direction: int = 0) -> NoisyLine | None:
        """The line with its noise, the same for the same seed; None where there is none."""
        config = self.config
        draw: Draw = random.Random(seed).random
        case, end = draw(), draw()
        in_capitals = case < config.upper
        text = source
        if config.typos:
            text = outside_placeholders(text, lambda part: _with_typos(part, config.typos, draw))
        if end < config.drop_final_punctuation:
            text = _FINAL_MARKS.sub("", text) or text
        if in_capitals:
            text = upper_case(text, self.languages[direction][0])
        elif case < config.upper + config.title:
            text = title_case(text, self.languages[direction][0])
        return NoisyLine(text, in_capitals) if text != source else None

    def target(self, line: NoisyLine, target: str, direction: int = 0) -> str:
        """The target that belongs to a noisy line."""
        if not (line.in_capitals and self.config.upper_target):
            return target
        return upper_case(target, self.languages[direction][1])


def line_noise(data: DataConfig) -> LineNoise | None:
    """The noise that a run asks for; None without any."""
    if data.noise is None or not data.noise.used:
        return None
    if data.languages is None:
        return LineNoise(data.noise, [(data.source, data.target)])
    return LineNoise(data.noise, [(each.source, each.target) for each in data.languages.directions])


def _with_typos(text: str, probability: float, draw: Draw) -> str:
    return _WORD.sub(lambda word: typo(word[0], draw) if draw() < probability else word[0], text)


def typo(word: str, draw: Draw) -> str:
    """A word of three letters or more with two letters swapped, or one dropped or doubled; not the first."""
    kind, place = int(3 * draw()), draw()
    if kind == 0:
        at = 1 + int(place * (len(word) - 2))
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    at = 1 + int(place * (len(word) - 1))
    return word[:at] + word[at + 1 :] if kind == 1 else word[:at] + word[at] + word[at:]
