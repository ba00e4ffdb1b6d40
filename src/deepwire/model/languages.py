"""Parameters of which each target language has its own, and the languages of the rows that are computed."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.base import Section

Transform = Literal["none", "released", "identity"]
Sides = Literal["none", "encoder", "decoder", "both"]


class LanguagesConfig(Section):
    """What each target language has its own of, in a model of several; nothing unless asked for."""

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


class TargetLanguages(threading.local):
    """The target language of each row of the pass that is running, for the parameters that depend on it.

    Connections, mixers, aggregations and fusions do not know of languages: their norms look here. All of a
    model's have one such object, which `TranslationModel` sets for as long as a pass takes. Each thread
    sees what it has set itself. What is computed once more for its gradient needs `of` then, too.

    Attributes:
        count: How many languages there are, L.
        rows: `[B]` int64, from 0, or `[1]` where all rows have one language; None between passes.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.rows: Tensor | None = None

    def __reduce__(self) -> tuple[type[TargetLanguages], tuple[int]]:
        """A copy has languages of its own, and none set."""
        return TargetLanguages, (self.count,)

    def of(self, rows: Tensor) -> RowLanguages:
        """A context in which the rows have these languages, `[B]` or `[1]`."""
        return RowLanguages(self, rows)

    def rows_now(self) -> Tensor:
        """The languages of the rows that are being computed, `[B]` or `[1]`."""
        if self.rows is None:
            raise RuntimeError("a part of the model that depends on the target language was called by itself")
        return self.rows

    def pick(self, table: Tensor) -> Tensor:
        """The entry of each row, `[B or 1, ...]`, of a table `[L, ...]`."""
        return table.index_select(0, self.rows_now())


class RowLanguages:
    """Sets the languages of the rows of a pass, and afterwards what was set before."""

    def __init__(self, languages: TargetLanguages, rows: Tensor) -> None:
        self._languages, self._rows = languages, rows
        self._before: Tensor | None = None

    def __enter__(self) -> None:
        self._before = self._languages.rows
        self._languages.rows = self._rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._languages.rows = self._before


class LanguageEmbedding(nn.Module):
    """A vector for each target language, `[L, d]`, that every position of its rows receives."""

    def __init__(self, languages: TargetLanguages, dim: int) -> None:
        super().__init__()
        self._languages = languages
        self.table = nn.Parameter(torch.empty(languages.count, dim))

    def forward(self) -> Tensor:
        """The vectors of the rows that are computed, `[B or 1, 1, d]`."""
        return self._languages.pick(self.table).unsqueeze(1)


class LanguageTransform(nn.Module):
    """x <- W_t x with a matrix for each target language t, without bias (LALT).

    Zhang et al. 2020 (Improving Massively Multilingual Neural Machine Translation and Zero-Shot Translation),
    between encoder and decoder. `weight` is `[L, d, d]`: of each language the rows are outputs. It begins as
    the identity, or as in the released code: Glorot's uniform for a matrix `[L, d * d]`, so that
    what leaves the encoder is scaled by about 1.4 / sqrt(d) at first.
    """

    def __init__(self, languages: TargetLanguages, dim: int, initial: Transform) -> None:
        super().__init__()
        self._languages = languages
        self.weight = nn.Parameter(torch.empty(languages.count, dim, dim))
        with torch.no_grad():
            if initial == "identity":
                self.weight.copy_(torch.eye(dim).expand_as(self.weight))
            else:
                nn.init.xavier_uniform_(self.weight.flatten(1))

    def forward(self, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Map the encoder's results, each `[N, S, d]`."""
        rows = self._languages.rows_now()
        if rows.size(0) == 1:
            (weight,) = self._languages.pick(self.weight)
            return tuple(functional.linear(result, weight) for result in results)
        if self.weight.device.type == "cpu" and not torch.compiler.is_compiling():
            return tuple(self._by_language(result, rows) for result in results)
        # Elsewhere finding out which languages there are would wait for the device.
        maps = self.weight.index_select(0, rows).transpose(1, 2)
        return tuple(torch.bmm(result, maps.to(result.dtype)) for result in results)

    def _by_language(self, result: Tensor, rows: Tensor) -> Tensor:
        """One product for all sentences of a language, and no copy of its matrix for each sentence."""
        order = rows.argsort()
        counts = rows.bincount(minlength=self._languages.count).tolist()
        parts = torch.split(result.index_select(0, order), counts)
        maps = zip(self.weight.unbind(), parts, strict=True)
        mapped = [functional.linear(part, weight) for weight, part in maps if part.size(0)]
        return torch.cat(mapped).index_select(0, order.argsort())


def common(languages: Tensor) -> Tensor:
    """The languages of rows `[B]` as `[1]` where they are all the same, which is cheaper to compute with."""
    if languages.size(0) < 2 or not bool((languages == languages[0]).all()):
        return languages
    return languages[:1]
