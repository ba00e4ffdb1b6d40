"""The property tests that plugins may run find what is wrong with a choice, and pass what is right."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from deepwire.errors import UsageError
from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState
from deepwire.model.connections.residual import PreNorm, PreNormConfig
from deepwire.model.context import Context
from deepwire.model.initialization import LipschitzConfig
from deepwire.model.mixers.mixer import Mixer, State
from deepwire.model.mixers.self_attention import SelfAttention, SelfAttentionConfig
from deepwire.model.stack_spec import StackSpec
from deepwire.testing import (
    check_aggregation,
    check_connection,
    check_fusion,
    check_initialization,
    check_mixer,
)

Fault = Literal["none", "future", "unused", "memory", "batch"]


class FaultyConfig(PreNormConfig):
    """Pre-norm with something wrong."""

    type: Literal["faulty"] = "faulty"  # type: ignore[assignment]
    fault: Fault = "none"

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return Faulty(self, spec)


class Faulty(PreNorm):
    """A connection with a fault, whose effect is in `write`."""

    def __init__(self, config: FaultyConfig, spec: StackSpec) -> None:
        super().__init__(config, spec)
        self.fault, self.passes = config.fault, 0
        self.spare = nn.Linear(4, 4) if config.fault == "unused" else None

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the output, and perhaps what may not be known, or is of another pass."""
        (x,) = super().write(state, index, read, output, context)
        if self.fault == "future":
            x = x + 0.1 * torch.cat((x[:, 1:], x[:, :1]), 1)
        elif self.fault == "batch":
            x = x + 0.1 * x.mean(0, keepdim=True)
        elif self.fault == "memory":
            self.passes += 1
            x = x * (1 + 0.01 * self.passes)
        return (x,)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("future", "padding changes row"),
        ("unused", r"connection\.spare\.weight has no gradient"),
        ("batch", "padding changes row"),
        ("memory", "padding changes row"),
    ],
)
def test_a_wrong_connection_is_found(fault: Fault, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_connection(FaultyConfig(fault=fault))


def test_a_right_connection_passes() -> None:
    """As an object whose class nobody registered, a mapping and a name."""
    check_connection(FaultyConfig())
    assert FaultyConfig not in ConnectionSection.members()  # what is checked is not known afterwards
    check_connection({"type": "pre_norm", "final_norm": False}, {"decoder": {"mixer": "average_attention"}})


class ForgetfulConfig(SelfAttentionConfig):
    """Self-attention whose steps are wrong."""

    type: Literal["forgetful"] = "forgetful"  # type: ignore[assignment]

    def build(self, spec: StackSpec) -> Mixer:
        """One mixer."""
        return Forgetful(spec)


class Forgetful(SelfAttention):
    """A step gives half of what the whole pass gives."""

    def step(self, *arguments: object, **options: object) -> tuple[Tensor, State]:
        """Half of it."""
        output, state = super().step(*arguments, **options)  # type: ignore[arg-type]
        return output / 2, state


def test_a_wrong_mixer_is_found() -> None:
    with pytest.raises(AssertionError, match="step 0 deviates"):
        check_mixer(ForgetfulConfig())


@pytest.mark.parametrize(
    "check", [check_connection, check_mixer, check_aggregation, check_fusion, check_initialization]
)
def test_a_choice_that_is_none_is_refused_in_a_line(check) -> None:
    with pytest.raises(UsageError, match=r"^settings: must be .*, not 'no_such_choice'") as raised:
        check("no_such_choice")
    assert "\n" not in str(raised.value)


class IncompleteConfig(LipschitzConfig):
    """Leaves the linear maps as they are."""

    type: Literal["incomplete"] = "incomplete"  # type: ignore[assignment]

    def linear(self, module: nn.Linear, layer: int) -> None:
        """Nothing."""


def test_an_initialisation_that_forgets_something_is_found() -> None:
    with pytest.raises(AssertionError, match="was not set"):
        check_initialization(IncompleteConfig())
