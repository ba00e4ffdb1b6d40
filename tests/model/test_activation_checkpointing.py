"""Activation checkpointing changes what is kept, and no number: loss and gradients to the last bit."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from deepwire.model.translation_model import TranslationModel
from deepwire.testing import batch, small_model


def gradients(model: TranslationModel, *, recomputes: bool) -> tuple[Tensor, ...]:
    """Loss and gradients with dropout, and the state of the random numbers afterwards."""
    for stack in (model.encoder, model.decoder):
        stack.recomputes = recomputes
    torch.manual_seed(5)
    loss = model.loss(*batch(), 0.1).smoothed
    found = torch.autograd.grad(loss, list(model.parameters()))
    return loss.detach(), *found, torch.rand(1)


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
