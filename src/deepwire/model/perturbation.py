"""Training on disturbed input: tokens cut, unknown or replaced at random, and SimCut's second pass.

One number is drawn for each token, from torch's generator, which training seeds for each update. Only words
are disturbed: never padding, the symbols of begin and end, or the tag of a language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor

from deepwire.config.counts import Positive, Probability
from deepwire.config.section import NumberSection, Removed, Section


class NoiseConfig(NumberSection):
    """How often a word of one side is disturbed; a plain number is that of `cutoff`."""

    written_as = (Probability,)
    plain_sets = ("cutoff",)
    no_number = "a number is the probability of a cutoff, from 0 to below 1, not {}"

    cutoff: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="probability that the embedding of a word is zero; its position stays (token cutoff)",
    )
    unknown: float = Field(
        0.0, ge=0, lt=1, description="probability that a word is read as the unknown word (word dropout)"
    )
    replace: float = Field(
        0.0, ge=0, lt=1, description="probability that a word is read as another one, all equally likely"
    )

    @model_validator(mode="after")
    def _leaves_words(self) -> NoiseConfig:
        if self.total >= 1:
            raise ValueError(
                f"cutoff, unknown and replace are {self.total:g} together, which leaves no word as it is"
            )
        return self

    @property
    def total(self) -> float:
        """The probability that a word is disturbed."""
        return self.cutoff + self.unknown + self.replace


class InputNoiseConfig(Section):
    """Words of the input that are disturbed in training; the words to be predicted stay.

    Cutoff: Shen et al. 2020 (A Simple but Tough-to-Beat Data Augmentation Approach). Unknown: Bowman et al.
    2016 (Generating Sentences from a Continuous Space). Replace, and the comparison of these: Takase and
    Kiyono 2021 (Rethinking Perturbations in Encoder-Decoders for Fast Training).
    """

    source: NoiseConfig = Field(NoiseConfig(), description="what the encoder reads")
    target: NoiseConfig = Field(NoiseConfig(), description="what the decoder reads")


class SimCutConfig(NumberSection):
    """SimCut: a second pass over the same pairs with words cut (Gao et al. 2022, Bi-SimCut)."""

    written_as = (Positive,)
    plain_sets = ("alpha",)
    no_number = "a number is the weight alpha, above 0, not {}; null: no second pass"
    removed: ClassVar[dict[str, Removed]] = {"stop_gradient": Removed(("none",), "both passes learn")}

    alpha: Positive = Field(default=3.0, description="weight of the divergence of the second pass")
    p_cut: float = Field(
        default=0.05, gt=0, lt=1, description="probability that the embedding of a word is zero there"
    )


class Words(NamedTuple):
    """The words of one side that can be disturbed.

    Attributes:
        unknown: Id of the unknown word; those of padding, begin and end are below it, all words above.
        stop: The id after that of the last word; tags of languages begin there.
    """

    unknown: int
    stop: int


class Input(NamedTuple):
    """Tokens that an embedding looks up, `[B, T]`, and a mask of those whose vectors are zero."""

    tokens: Tensor
    cut: Tensor | None = None


@dataclass(frozen=True)
class Perturbation:
    """How the input of a batch is disturbed.

    Attributes:
        source, target: The words of each side.
        noise: Disturbs every pass; None: nothing does.
        sim_cut: Makes two passes of a batch, and cuts in the second one; None: one pass.
    """

    source: Words
    target: Words
    noise: InputNoiseConfig | None = None
    sim_cut: SimCutConfig | None = None

    def draw(self, source: Tensor, target: Tensor) -> tuple[Input, Input]:
        """Disturb ids `[B, S]` and `[B, T]`; with SimCut the second half of the rows is the second pass."""
        noise = self.noise or InputNoiseConfig()
        sides = ((source, self.source, noise.source), (target, self.target, noise.target))
        first, second = (self._also_cut(disturbed(*side), side[0], side[1]) for side in sides)
        return first, second

    def _also_cut(self, read: Input, tokens: Tensor, words: Words) -> Input:
        if self.sim_cut is None:
            return read
        second = torch.arange(len(tokens), device=tokens.device).unsqueeze(1) >= len(tokens) // 2
        drawn = torch.rand(tokens.shape, device=tokens.device) < self.sim_cut.p_cut
        cut = drawn & second & _words(tokens, words)
        return Input(read.tokens, cut if read.cut is None else read.cut | cut)


def disturbed(tokens: Tensor, words: Words, noise: NoiseConfig) -> Input:
    """Draw for each token `[B, T]` whether it is cut, unknown, replaced, or none of these."""
    if not noise.total:
        return Input(tokens)
    drawn = torch.rand(tokens.shape, device=tokens.device)
    # Numbers of one are not below any bound.
    drawn = drawn.masked_fill(~_words(tokens, words), 1.0)
    cut = drawn < noise.cutoff
    if noise.unknown:
        unknown = (drawn >= noise.cutoff) & (drawn < noise.cutoff + noise.unknown)
        tokens = tokens.masked_fill(unknown, words.unknown)
    if noise.replace:
        other = torch.randint_like(tokens, min(words.unknown + 1, words.stop - 1), words.stop)
        tokens = torch.where((drawn >= noise.cutoff + noise.unknown) & (drawn < noise.total), other, tokens)
    return Input(tokens, cut if noise.cutoff else None)


def _words(tokens: Tensor, words: Words) -> Tensor:
    return (tokens >= words.unknown) & (tokens < words.stop)
