"""Dense residual connections: every layer reads the average or the sum of all layers below.

Wang et al. 2019 (Learning Deep Transformer Models for Machine Translation), Figure 2(b), after Britz et al.
2017; DLCL whose weights stay as they begin.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from deepwire.model.aggregations.aggregation import Aggregation, AggregationSection
from deepwire.model.aggregations.dlcl import (
    CombinationDropout,
    DLCLConfig,
    EmbeddingNorm,
    HistoryNorm,
    Window,
)
from deepwire.model.stack_spec import StackSpec


class DenseConfig(AggregationSection):
    """Dense residual connections, with the norms of DLCL: nothing is learned but these norms."""

    type: Literal["dense"] = "dense"
    weights: Literal["average", "sum"] = Field(
        "average", description="average (1/N each; the paper's Table 6: fix 1/N) or sum (fix 1)"
    )
    norm: HistoryNorm = Field(
        "auto",
        description="layer norm of each stored output (before) or of the combination (after); auto: after "
        "for post_norm, before for the others",
    )
    embedding_norm: EmbeddingNorm = Field(
        "once", description="norm of the embedding's entry, as of dlcl; the released code: none"
    )
    window: Window = None
    dropout: CombinationDropout = 0.0

    def has_norm(self, spec: StackSpec) -> bool:
        """Unless left out."""
        return self.norm != "none"

    def build(self, spec: StackSpec) -> Aggregation:
        """The combination of a whole stack."""
        return DLCLConfig(
            initial="one" if self.weights == "sum" else "average",
            learned=False,
            norm=self.norm,
            embedding_norm=self.embedding_norm,
            window=self.window,
            dropout=self.dropout,
        ).build(spec)
