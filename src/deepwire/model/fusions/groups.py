"""GTrans: layers in groups, fused for the encoder's memory and for the prediction.

Yang et al. 2022 (GTrans: Grouping and Fusing Transformer Layers for Neural Machine Translation), Eq. 2 to 7.
The weights of groups may be each target language's own (`model.languages.fusion`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.context import Context
from deepwire.model.fusions.fusion import Fusion, FusionSection, Probabilities
from deepwire.model.introspection import TARGET_LANGUAGE, DepthWeights, layer_names, single
from deepwire.model.layers import of_languages
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.weighted_sum import weighted_sum


class GroupsConfig(FusionSection):
    """Group fusion. The last group is shorter when the size does not divide the depth."""

    type: Literal["groups"] = "groups"
    size: int = Field(
        3, ge=1, description="layers in a group (the paper: 3 in the encoder, 2 in the decoder)"
    )
    representation: Literal["last", "sum", "mean"] | None = Field(
        None,
        description="of a group: its last layer, or the gated sum (Eq. 4) or mean (released: dense) of its "
        "layers; default last in the encoder (Eq. 2) and sum in the decoder",
    )
    combine: Literal["mixture", "average"] | None = Field(
        None,
        description="decoder: a mixture of the groups' predictions, or one prediction from the gated average "
        "of the groups (released: sparse-without-ensemble); an encoder always averages",
    )
    probabilities: Probabilities = Field(
        "arithmetic",
        description="the mixture: sum of weighted probabilities (Eq. 5), or of weighted log-probabilities "
        "(released)",
    )
    temperature: float | None = Field(
        None, gt=0, description="of the mixture's softmax; the square root of d_model without it"
    )
    norm: bool = Field(
        True,
        description="encoder: layer norm of the average (Eq. 2); the paper's text has none where all layers "
        "are one group",
    )

    def check(self, spec: StackSpec) -> None:
        """Groups that fit into the stack, and what only one side has."""
        if self.size > spec.layers:
            raise ValueError(
                f"{spec.side}.fusion: groups of {self.size} layers need at least {self.size} layers, not "
                f"{spec.layers}"
            )
        if spec.side == "encoder" and self.combine == "mixture":
            raise ValueError("combine: mixture is for the decoder; an encoder's groups are averaged")
        if spec.side == "decoder" and not self.norm:
            raise ValueError("norm: false is for the encoder; no norm follows a decoder's groups")

    def has_norm(self, spec: StackSpec) -> bool:
        """An encoder's, unless left out."""
        return spec.side == "encoder" and self.norm

    def build(self, spec: StackSpec) -> Fusion:
        """The fusion of a whole stack."""
        if spec.side == "decoder" and self.combine != "average":
            return MixedGroups(spec, self)
        representation, final_norm = self.representation or "last", self.has_norm(spec)
        return AveragedGroups(spec, self.size, representation, final_norm=final_norm)


class _Groups(Fusion):
    """Group representations: the last h of a group, or sum or mean of sigma(v_i) h_i over it (Eq. 4)."""

    def __init__(self, spec: StackSpec, size: int, representation: str) -> None:
        super().__init__()
        layers = range(1, spec.layers + 1)
        self.groups = [layers[start : start + size] for start in range(0, spec.layers, size)]
        self.representation = representation
        self.layer_gates = nn.Parameter(torch.zeros(spec.layers)) if representation != "last" else None
        self.use(range(len(self.groups)))

    def use(self, chosen: range) -> None:
        """Look at these groups alone, counted from 0."""
        self.chosen = chosen
        groups = [self.groups[number] for number in chosen]
        wanted = [group[-1:] if self.layer_gates is None else group for group in groups]
        self.keeps = frozenset(layer for layers in wanted for layer in layers)

    def represent(self, kept: Sequence[Tensor]) -> list[Tensor]:
        """One `[B, T, d]` for each group."""
        if self.layer_gates is None:
            return list(kept)
        gates = self.layer_gates.sigmoid().to(kept[0].dtype)
        lowest = min(self.keeps)
        representations = []
        for number in self.chosen:
            group = self.groups[number]
            of_layers = gates[group[0] - 1 : group[-1]].unbind()
            total = weighted_sum(of_layers, [kept[layer - lowest] for layer in group])
            representations.append(total / len(group) if self.representation == "mean" else total)
        return representations

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The gates of layers within their groups (Eq. 4), where groups have them."""
        if self.layer_gates is None:
            return ()
        names = [
            f"{layer} (group {number})" for number, group in enumerate(self.groups, 1) for layer in group
        ]
        title = "Gates of layers in the representation of their group"
        return (single("layer-gates", title, self.layer_gates.sigmoid(), names, "layer"),)

    def lowest(self, layers: int) -> Fusion:
        """The groups up to layer `layers`; the last of them may be cut, and is what is left of it then."""
        lower = copy(self)
        lower.groups = [
            range(group.start, min(group.stop, layers + 1)) for group in self.groups if group.start <= layers
        ]
        lower.use(range(len(lower.groups)))
        return lower


class AveragedGroups(_Groups):
    """LN((1/M) sum_m sigma(w_m) h_m), one result (Eq. 2; the norm is the encoder's).

    `gates` w are `[M]`, or `[L, M]` of target languages.
    """

    def __init__(self, spec: StackSpec, size: int, representation: str, *, final_norm: bool) -> None:
        super().__init__(spec, size, representation)
        self.gates = _weights(len(self.groups), spec.fusion_languages)
        self.norm = spec.norm() if final_norm else None

    def forward(
        self, kept: Sequence[Tensor], normalise: Callable[[Tensor], Tensor], context: Context
    ) -> tuple[Tensor, ...]:
        """One result, `[B, T, d]`."""
        groups = [normalise(group) for group in self.represent(kept)]
        weights: Tensor = self.gates
        if weights.dim() == 2:
            weights = of_languages(weights, context.languages).t()[..., None, None]
        gates = weights[: len(groups)].sigmoid().to(groups[0].dtype)
        average = weighted_sum(gates.unbind(), groups) / len(groups)
        return (average if self.norm is None else self.norm(average, context),)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The gates of groups in the average (Eq. 2), besides those of layers."""
        title = "Gates of groups in the average"
        return (*super().depth_weights(), _of_groups("group-gates", title, self.gates.sigmoid()))


class MixedGroups(_Groups):
    """One result for each group, predicted together with weights softmax(u / temperature) (Eq. 5 to 7).

    `weights` u are `[G]`, or `[L, G]` of target languages. The weight of a single group changes nothing, as a
    softmax over one is 1; it is a parameter all the same, because stored models have it.
    """

    def __init__(self, spec: StackSpec, config: GroupsConfig) -> None:
        super().__init__(spec, config.size, config.representation or "sum")
        self.weights = _weights(len(self.groups), spec.fusion_languages)
        self.temperature = config.temperature or spec.dim**0.5
        self.probabilities = config.probabilities

    def forward(
        self, kept: Sequence[Tensor], normalise: Callable[[Tensor], Tensor], context: Context
    ) -> tuple[Tensor, ...]:
        """G results, each `[B, T, d]`."""
        return tuple(normalise(group) for group in self.represent(kept))

    def log_weights(self, languages: Tensor | None = None) -> Tensor | None:
        """Log of psi over the chosen groups, `[G]`, or `[G, B]` of the rows' languages; they sum to one."""
        if len(self.chosen) == 1 < len(self.groups):
            return None  # its own probabilities as they are; of one group in all the weight stays in use
        weights: Tensor = self.weights
        if weights.dim() == 2:
            weights = of_languages(weights, languages).squeeze(0).t()
        chosen = weights[self.chosen.start : self.chosen.stop]
        # A mixture is of log-probabilities in float32, also where the model's own numbers have fewer bits.
        wide = torch.promote_types(chosen.dtype, torch.float32)
        return (chosen / self.temperature).log_softmax(0, dtype=wide)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The probability weights psi of all groups (Eq. 5), besides the gates of layers."""
        shares = (self.weights / self.temperature).softmax(-1)
        title = "Probability weights of groups in the prediction"
        return (*super().depth_weights(), _of_groups("probability-weights", title, shares))

    def restrict(self, first: int, last: int) -> Fusion:
        """The mixture of groups `first` to `last` alone, counted from 1 (Table VI).

        Their weights are scaled to sum to one, in a geometric mixture too: otherwise every token would cost a
        constant, and search would prefer short output.
        """
        groups = len(self.groups)
        if not 1 <= first <= last <= groups:
            raise ValueError(f"the decoder has {groups} group{'s' * (groups > 1)}, counted from 1")
        restricted = copy(self)
        restricted.use(range(first - 1, last))
        return restricted


def _weights(groups: int, languages: int) -> nn.Parameter:
    """A weight for each group, 0 at first; of each target language its own."""
    return nn.Parameter(torch.zeros((languages, groups) if languages else groups))


def _of_groups(key: str, title: str, values: Tensor) -> DepthWeights:
    """Weights of groups `[G]`, or `[L, G]` with a row for each target language."""
    names = layer_names(values.size(-1))
    if values.dim() == 1:
        return single(key, title, values, names, "group")
    rows = layer_names(values.size(0))
    return DepthWeights(key, title, values.detach(), rows, names, TARGET_LANGUAGE, "group")
