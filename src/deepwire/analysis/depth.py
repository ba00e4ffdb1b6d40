"""How much depth is worth: BLEU of a trained model without its top layers, or with some groups alone.

Yang et al. 2022 (GTrans), Table VI and Fig. 7: single groups and ranges of groups of a decoder, the lower
layers of an encoder. Nothing is trained again: the layers left are as they were in the whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from deepwire.analysis.scored import Scorer
from deepwire.analysis.variants import check_layer, part, with_stack
from deepwire.errors import UsageError
from deepwire.model.context import Side
from deepwire.model.encoder_decoder import TranslationModel


@dataclass(frozen=True)
class DepthScore:
    """BLEU with the lowest layers of one stack."""

    side: Side
    layers: int
    bleu: float


@dataclass(frozen=True)
class GroupScore:
    """BLEU with groups `first` to `last` of the decoder; `weight` is theirs in the mixture of all."""

    first: int
    last: int
    weight: float
    bleu: float


def with_layers(model: TranslationModel, side: Side, layers: int) -> TranslationModel:
    """The model whose encoder or decoder ends after its lowest `layers` layers; parameters are shared.

    The final norm stays, and a fusion of several layers takes those that are left.

    Raises:
        UsageError: There are not so many layers, or the fusion needs all of them.
    """
    stack = part(model, side)
    check_layer(stack, side, layers)
    if layers == stack.depth:
        return model
    try:
        fusion = stack.fusion.lowest(layers)
    except ValueError as error:
        raise UsageError(f"layers of the {side} cannot be left out: {error}") from None
    return with_stack(model, side, stack.with_parts(fusion=fusion))


def layer_scores(scorer: Scorer, side: Side, tell: Callable[[str], None]) -> list[DepthScore]:
    """BLEU with 1, 2, ... all layers of a stack, the other stack whole.

    Raises:
        UsageError: The fusion of the stack needs all layers.
    """
    depth = part(scorer.model, side).depth
    found = []
    for layers in range(1, depth + 1):
        found.append(DepthScore(side, layers, scorer.bleu(with_layers(scorer.model, side, layers))))
        tell(f"{side} with {layers} of {depth} layers: BLEU {found[-1].bleu:.2f}")
    return found


def group_scores(scorer: Scorer, tell: Callable[[str], None]) -> list[GroupScore]:
    """BLEU with every single group of the decoder, and with every range that ends with the last one.

    Empty where the decoder does not predict with a mixture of groups.
    """
    weights = group_weights(scorer.model, scorer.languages)
    found = []
    for first, last in _ranges(len(weights)):
        bleu = scorer.bleu(scorer.model, groups=f"{first}:{last}")
        found.append(GroupScore(first, last, sum(weights[first - 1 : last]), bleu))
        tell(f"decoder groups {first}:{last}: BLEU {bleu:.2f}")
    return found


def group_weights(model: TranslationModel, languages: Tensor | None = None) -> Sequence[float]:
    """The weights of the decoder's groups in its prediction; empty where there are no groups.

    `languages` `[1]` is the target language, where each may have weights of its own.
    """
    log_weights = model.decoder.fusion.log_weights(languages)
    if log_weights is None:
        return []
    weights: list[float] = log_weights.exp().tolist()
    return weights


def _ranges(groups: int) -> Iterator[tuple[int, int]]:
    yield from ((group, group) for group in range(1, groups + 1))
    yield from ((first, groups) for first in range(1, groups))
