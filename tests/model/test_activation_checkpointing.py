"""Activation checkpointing changes what is kept, and no number: loss and gradients to the last bit."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from choices import SOCKETS, choices, model_settings
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import batch, small_model

Options = Mapping[str, object]
PLAIN: Mapping[str, Options] = {
    "mixer": {"type": "self_attention"},
    "connection": {"type": "pre_norm"},
    "aggregation": {"type": "last"},
    "fusion": {"type": "top"},
}


def with_choice(side: Side, socket: str, options: Options) -> dict[str, object]:
    """A model that is plain but for one choice and what that needs beside it."""
    changed = {**PLAIN, socket: options}
    if options["type"] == "rnmt":
        changed["mixer"] = {"type": "ln_lstm"}
    return model_settings(*((changed, PLAIN) if side == "encoder" else (PLAIN, changed)))


CHOICES = [
    pytest.param(side, socket, options, marks=pytest.mark.slow if side == "encoder" else ())
    for side in ("encoder", "decoder")
    for socket in SOCKETS
    for options in choices(socket, side)
]


def gradients(model: TranslationModel, *, recomputes: bool) -> tuple[Tensor, ...]:
    """Loss and gradients with dropout, and the state of the random numbers afterwards."""
    for stack in (model.encoder, model.decoder):
        stack.recomputes = recomputes
    torch.manual_seed(5)
    loss = model.loss(*batch(), 0.1).smoothed
    found = torch.autograd.grad(loss, list(model.parameters()))
    return loss.detach(), *found, torch.rand(1)


@pytest.mark.parametrize(("side", "socket", "options"), CHOICES, ids=str)
def test_every_choice_gives_the_same_bits(side: Side, socket: str, options: Options) -> None:
    settings = with_choice(side, socket, options)
    other = "decoder" if side == "encoder" else "encoder"
    if settings[other] == PLAIN:
        settings[other] = {"layers": 1, **PLAIN}
    model = small_model({"dropout": 0.3, **settings}).train()
    kept, recomputed = (gradients(model, recomputes=answer) for answer in (False, True))
    assert all(torch.equal(one, other) for one, other in zip(kept, recomputed, strict=True))


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
