"""The attention that aligns best, found without gold alignments."""

from __future__ import annotations

import math
from typing import Literal, cast

import pytest
import torch

from deepwire.decoding.alignment import (
    AlignedPair,
    Attention,
    AttentionAligner,
    CannotAlignError,
    best_attention,
    mutual_information,
)
from deepwire.decoding.decoding_config import AlignmentConfig, DecodingConfig, with_settings
from deepwire.decoding.models import EnsembleMember
from deepwire.errors import ModelError, UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.mixers.merged_attention import MergedAttention, MergedAttentionConfig
from deepwire.model.mixers.mixer import SourceMixer
from deepwire.training.extras import GuidedAlignment, GuidedAlignmentConfig

CPU = torch.device("cpu")


def test_mutual_information_of_a_few_links_by_hand():
    # 1 stands with 5 twice, 2 with 6 and with 5 once.
    sources, targets = torch.tensor([1, 1, 2, 2]), torch.tensor([5, 5, 6, 5])
    # (1, 5): p(s) = 1/2, one other of two others with 5, one more from p(s): ((2 - 1) / 0.5 + 1) / 3.
    # (2, 6): nothing else says 6. (2, 5): (0 / 0.5 + 1) / 3.
    expected = (2 * math.log(1.0) + math.log(1.0) + math.log(1 / 3)) / 4
    assert mutual_information(sources, targets) == pytest.approx(expected)


class Looking:
    """A model with an attention that knows that source subword s goes with target subword s + 10."""

    def __init__(self, layer, head, reads):
        self.layer, self.head, self.reads = layer, head, reads

    def source_weights(self, source, target_input, layers=None, *, languages=None):
        shape = (len(source), 2, target_input.size(1), source.size(1))
        found = {layer: torch.rand(shape, generator=torch.Generator().manual_seed(layer)) for layer in (1, 3)}
        right = 0.1 * (target_input.unsqueeze(2) == source.unsqueeze(1) + 10).float()
        if not self.reads:
            right = right.roll(-1, 1)
        found[self.layer][:, self.head] = right
        return found


def pairs(context=()):
    generator = torch.Generator().manual_seed(4)
    found = []
    for _ in range(60):
        source = (torch.randperm(12, generator=generator)[:6] + 5).tolist()
        order = torch.randperm(6, generator=generator).tolist()
        pair = AlignedPair.of(source, [source[place] + 10 for place in order], None, bos=True)
        found.append(pair._replace(context=context))
    return found


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize(("layer", "head"), [(1, 0), (3, 1)])
@pytest.mark.parametrize("context", [(), (40, 41)])
def test_the_attention_that_knows_is_found(layer, head, reads, context):
    model = cast("EnsembleMember", Looking(layer, head, reads))
    found = best_attention(model, pairs(context), CPU)
    assert found == Attention(layer + 1, head + 1, "reads" if reads else "writes")


def test_a_model_that_does_not_look_at_the_source_has_none():
    class Blind:
        def source_weights(self, *_, **__):
            raise ModelError("nothing")

    assert best_attention(cast("EnsembleMember", Blind()), pairs(), CPU) is None


class Pooling(MergedAttention):
    """It reads the source in another way, which nobody can look at."""

    source_weights = SourceMixer.source_weights  # type: ignore[assignment]


class PoolingConfig(MergedAttentionConfig):
    type: Literal["pooling"] = "pooling"  # type: ignore[assignment]

    def build(self, context):
        return Pooling(context, own_value=True)


def test_a_mixer_may_read_the_source_without_weights():
    decoder = {"layers": 1, "mixer": PoolingConfig()}
    shape = {"d_model": 8, "heads": 2, "feed_forward": 16, "encoder": {"layers": 1}, "decoder": decoder}
    model = build_model(ModelConfig.model_validate(shape), 50, 50).eval()
    assert best_attention(model, pairs(), CPU) is None
    reason = "and no layer of the decoder gives weights to the source"
    with pytest.raises(CannotAlignError, match=f"^alignments come from attention to the source, {reason}$"):
        AttentionAligner(model, AlignmentConfig(), 100, CPU)
    with pytest.raises(UsageError, match=f"^training.guided_alignment looks at the source, {reason}$"):
        GuidedAlignment(GuidedAlignmentConfig(), model)


def test_another_layer_is_not_given_the_stored_head():
    stored = DecodingConfig.model_validate({"alignment": {"layer": 2, "head": 3, "step": "writes"}})
    assert with_settings(stored, {"alignment": {"layer": 1}}).alignment.head is None
    assert with_settings(stored, {"alignment": {"head": 1}}).alignment.layer == 2
