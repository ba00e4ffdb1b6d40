"""Activation checkpointing: what is kept; that no number changes is checked with every choice."""

from __future__ import annotations

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from deepwire.model.translation_model import TranslationModel
from deepwire.testing import batch, small_model


def kept_bytes(model: TranslationModel) -> int:
    """What the forward pass leaves for the backward pass, what enters a layer again not counted."""
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        model.loss(*batch())
    return sum(storages.values())


def test_layers_keep_nothing() -> None:
    shallow, deep = (
        small_model({"encoder": {"layers": layers}, "decoder": {"layers": 1}}).train() for layers in (1, 9)
    )
    grown = kept_bytes(deep) - kept_bytes(shallow)
    for model in (shallow, deep):
        model.encoder.recomputes = True
    assert kept_bytes(deep) - kept_bytes(shallow) < grown / 20


def test_nothing_is_computed_twice_outside_of_training() -> None:
    model = small_model({"encoder": {"layers": 2}})
    model.encoder.recomputes = True
    calls: list[int] = []
    model.encoder.feed_forwards[0].register_forward_pre_hook(lambda *_: calls.append(1))
    model.loss(*batch()).smoothed.backward()
    assert len(calls) == 1
    model.train()
    model.loss(*batch()).smoothed.backward()
    assert len(calls) == 3
