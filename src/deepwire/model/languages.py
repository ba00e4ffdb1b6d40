"""Parameters of which each target language has its own.

The target languages of the rows of a pass are handed down to every part that may depend on them: `[B]` int64
from 0, or `[1]` where all rows have one language.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.section import Section
from deepwire.model.layers import of_languages

Transform = Literal["none", "released", "identity"]
Sides = Literal["none", "encoder", "decoder", "both"]


class LanguagesConfig(Section):
    """Parts that each target language has of its own in a model of several; none unless asked for."""

    norm: bool = Field(
        False,
        description="gain and bias of each layer norm of encoder and decoder (LALN, Zhang et al. 2020)",
    )
    transform: Transform = Field(
        "none",
        description="a linear map of the encoder's output (LALT, Zhang et al. 2020) that begins as the "
        "identity, or as in the released code, with far smaller values (released)",
    )
    embedding: Sides = Field(
        "none", description="a vector that is added to the embeddings of this side (Neutron: both)"
    )
    fusion: Sides = Field(
        "none",
        description="the weights of groups in the fusion of this side, groups (GTrans as released, ls:sparse "
        "and ls:sparse-without-ensemble: decoder)",
    )
    output_bias: bool = Field(False, description="bias of the output projection; needs bias.output")

    @property
    def used(self) -> bool:
        """Whether there are such parameters at all."""
        parts = (self.transform, self.embedding, self.fusion)
        return self.norm or self.output_bias or any(part != "none" for part in parts)


class LanguageEmbedding(nn.Module):
    """A vector for each of L target languages, `[L, d]`, that every position of its rows receives."""

    def __init__(self, languages: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(languages, dim))

    def forward(self, languages: Tensor | None) -> Tensor:
        """The vectors of rows with these languages, `[B or 1, 1, d]`."""
        return of_languages(self.table, languages).unsqueeze(1)


class LanguageTransform(nn.Module):
    """x <- W_t x with a matrix for each target language t, without bias (LALT).

    Zhang et al. 2020 (Improving Massively Multilingual Neural Machine Translation and Zero-Shot Translation),
    between encoder and decoder. `weight` is `[L, d, d]`: of each language the rows are outputs. It begins as
    the identity, or as in the released code: Glorot's uniform for a matrix `[L, d * d]`, so that
    what leaves the encoder is scaled by about 1.4 / sqrt(d) at first.
    """

    def __init__(self, languages: int, dim: int, initial: Transform) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(languages, dim, dim))
        with torch.no_grad():
            if initial == "identity":
                self.weight.copy_(torch.eye(dim).expand_as(self.weight))
            else:
                nn.init.xavier_uniform_(self.weight.flatten(1))

    def forward(self, results: tuple[Tensor, ...], languages: Tensor | None) -> tuple[Tensor, ...]:
        """Map the encoder's results, each `[N, S, d]`, of sentences for these languages."""
        if languages is None or languages.size(0) == 1:
            (weight,) = of_languages(self.weight, languages)
            return tuple(functional.linear(result, weight) for result in results)
        if self.weight.device.type == "cpu" and not torch.compiler.is_compiling():
            return tuple(self._by_language(result, languages) for result in results)
        # Elsewhere finding out which languages there are would wait for the device.
        maps = of_languages(self.weight, languages).transpose(1, 2)
        return tuple(torch.bmm(result, maps.to(result.dtype)) for result in results)

    def _by_language(self, result: Tensor, languages: Tensor) -> Tensor:
        """One product for all sentences of a language, and no copy of its matrix for each sentence."""
        order = languages.argsort()
        counts = languages.bincount(minlength=self.weight.size(0)).tolist()
        parts = torch.split(result.index_select(0, order), counts)
        maps = zip(self.weight.unbind(), parts, strict=True)
        mapped = [functional.linear(part, weight) for weight, part in maps if part.size(0)]
        return torch.cat(mapped).index_select(0, order.argsort())


def one_if_equal(languages: Tensor | None) -> Tensor | None:
    """The languages of rows `[B]` as `[1]` where they are all the same, which is cheaper to compute with."""
    if languages is None or languages.size(0) < 2 or not bool((languages == languages[0]).all()):
        return languages
    return languages[:1]
