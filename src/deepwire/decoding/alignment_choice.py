"""Which attention aligns best, found without alignments that anybody made.

Where words that belong together are linked, a subword of the target says much about the subword that it is
linked to, in all sentences alike. So the attention is taken whose links have the largest mutual information.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepwire.data.batches.token_store import TokenStore
from deepwire.data.languages import Languages
from deepwire.data.vocabulary import Vocabularies
from deepwire.decoding.attention_alignment import AlignedPair, attention_to_source, text_weights
from deepwire.decoding.model_inputs import LanguageSelector, batches_by_length
from deepwire.decoding.step_models import EnsembleMember
from deepwire.errors import ModelError

Step = Literal["writes", "reads"]
STEPS: tuple[Step, Step] = ("reads", "writes")
_BATCH_TOKENS = 1024
_MOST_PAIRS = 500


class Attention(NamedTuple):
    """An attention that alignments can be read off.

    Attributes:
        layer: From 1.
        head: From 1; None: the mean of all.
        step: Of the decoder.
    """

    layer: int
    head: int | None
    step: Step

    @property
    def options(self) -> str:
        """The options of ``deepwire translate`` that choose it."""
        head = "" if self.head is None else f" --alignment-head {self.head}"
        return f"--alignment --alignment-layer {self.layer}{head} --alignment-step {self.step}"


def stored_pairs(
    store: TokenStore, vocabularies: Vocabularies, languages: Languages | None, *, bos: bool
) -> list[AlignedPair]:
    """At most 500 pairs of a prepared text, from all parts of it; without context.

    Args:
        store: The text.
        vocabularies: Its subwords.
        languages: Of a model of several directions.
        bos: Whether the model reads BOS in front of a source.
    """
    select = LanguageSelector(languages, vocabularies, lambda _: None).select
    pairs = []
    for line in range(0, len(store), -(-len(store) // _MOST_PAIRS) or 1):
        into = None
        if languages is not None and store.directions is not None:
            into = select(languages.directions[int(store.directions[line])].target)
        source, target = store.source(line).tolist(), store.target(line).tolist()
        if source and target:
            pairs.append(AlignedPair.of(source, target, into, bos=bos))
    return pairs


def best_attention(
    model: EnsembleMember[Any], pairs: Sequence[AlignedPair], device: torch.device
) -> Attention | None:
    """The one whose links have the largest `mutual_information`; None without attention to the source.

    Args:
        model: In evaluation mode.
        pairs: Sentences and translations; some hundred are enough.
        device: Where the model is.
    """
    try:
        linked, written = _linked_subwords(model, pairs, device)
    except ModelError:
        return None
    scores = {attention: mutual_information(sources, written) for attention, sources in linked.items()}
    return max(scores, key=lambda attention: (scores[attention], attention.head is None), default=None)


def mutual_information(sources: Tensor, targets: Tensor) -> float:
    """What the target subword of a link says about its source subword, in nats.

    Of n links the mean of log p(s | t) / p(s), where p(s) = n(s) / n, and p(s | t) is counted in the other
    links, mixed with one more that is drawn from p(s): a pair that stands there once proves nothing.

    Args:
        sources, targets: `[n]` the numbers of the subwords of each link.
    """
    keys = sources.numpy() * (int(targets.max()) + 1) + targets.numpy()
    both, of_source, of_target = map(_occurrences, (keys, sources.numpy(), targets.numpy()))
    share = of_source / len(keys)
    return float(np.log(((both - 1) / share + 1) / of_target).mean())


def _occurrences(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """How often each of them `[n]` is among them."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return counts[places].astype(np.float64)


def _linked_subwords(
    model: EnsembleMember[Any], pairs: Sequence[AlignedPair], device: torch.device
) -> tuple[dict[Attention, Tensor], Tensor]:
    """The source subword of each target subword by each attention, `[n]`, and the target subwords `[n]`."""
    subwords_of: dict[Attention, list[Tensor]] = {}
    written: list[Tensor] = []
    lengths = [max(len(pair.source), len(pair.read)) for pair in pairs]
    for rows in batches_by_length(lengths, _BATCH_TOKENS):
        batch = [pairs[row] for row in rows]
        written += [torch.tensor(pair.target) for pair in batch]
        for layer, weights in attention_to_source(model, batch, None, device).items():
            heads = torch.cat([weights.mean(1, keepdim=True), weights], dim=1)
            best = text_weights(heads, batch).argmax(3).cpu()
            for head, step in ((head, step) for head in range(best.size(1)) for step in STEPS):
                subwords = subwords_of.setdefault(Attention(layer + 1, head or None, step), [])
                for row, pair in enumerate(batch):
                    first = len(pair.context) + (step == "reads")
                    places = best[row, head, first : first + len(pair.target)]
                    subwords.append(torch.tensor(pair.source)[places])
    return {attention: torch.cat(subwords) for attention, subwords in subwords_of.items()}, torch.cat(written)
