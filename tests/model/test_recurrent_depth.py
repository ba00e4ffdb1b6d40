"""Encoders with recurrent depth: the equations, what training draws, and what does not fit."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from deepwire.model.context import Context
from deepwire.model.recurrent_depth import RecurrentStack
from deepwire.testing import batch, check_model, check_recomputation, small_model
from deepwire.training.extras import RoundsDraw

RECURRENCE = {"prelude": 1, "coda": 1, "rounds": 3, "backward": 2}
ENCODER = {"layers": 4, "recurrence": RECURRENCE}


def encoder_of(**settings: object) -> RecurrentStack:
    encoder = small_model({"encoder": {**ENCODER, **settings}}).double().encoder
    assert isinstance(encoder, RecurrentStack)
    return encoder


@pytest.mark.parametrize("connection", ["pre_norm", "hyper", "depth_lstm", "attn_res", "runge_kutta"])
def test_rounds_do_all_that_must_hold(connection: str) -> None:
    """With connections of one stream, of several, and with memory; also computed once more."""
    settings = {"encoder": {**ENCODER, "connection": connection}, "positions": "rotary", "norm": "rms"}
    check_model(settings)
    check_recomputation(small_model(settings))
    model = small_model(settings)
    model.loss(*batch(), 0.1).smoothed.backward()
    of_encoder = model.stacks()["encoder"].named_parameters()
    assert [name for name, each in of_encoder if each.grad is None or not each.grad.any()] == []


@pytest.mark.parametrize("rounds", [1, 4])
def test_rounds_by_the_equations(rounds: int) -> None:
    """e = P(x), s_i = R(W [s; e]), C(s), each normalised; layers taken one by one from the stack."""
    encoder = encoder_of(connection="peri_ln")
    x, padding = torch.randn(2, 5, 16).double(), torch.zeros(2, 1, 1, 5).double()

    def run(x, layers):
        norms = encoder.connection.norms, encoder.connection.output_norms
        for layer in layers:
            for index, part in ((2 * layer, encoder.mixers), (2 * layer + 1, encoder.feed_forwards)):
                normal = norms[0][index](x)
                x = x + norms[1][index](part[layer](normal, Context(padding=padding)))
        return encoder.connection.normalise(x, Context())

    with torch.no_grad():
        entered = run(x, [0])
        state = torch.zeros_like(entered)
        for _ in range(rounds):
            state = run(torch.cat((state, entered), -1) @ encoder.joint.weight.T, [1, 2])
        (found,), _, _ = encoder.with_rounds(rounds)(x, Context(padding=padding))
    assert torch.allclose(found, run(state, [3]))


def test_only_the_last_rounds_have_gradients() -> None:
    """With two of three, the first round is a constant: gradients are those of two rounds from its result."""
    encoder = encoder_of(connection="post_norm")
    encoder.recurrence = encoder.recurrence.model_copy(update={"start_std": 0.0})
    x, padding = torch.randn(2, 5, 16).double(), torch.zeros(2, 1, 1, 5).double()

    def gradient(backward: int) -> torch.Tensor:
        encoder.recurrence = encoder.recurrence.model_copy(update={"backward": backward})
        encoder.train()
        (result,), _, _ = encoder(x, Context(padding=padding))
        weight = encoder.get_parameter("joint.weight")
        found: torch.Tensor = torch.autograd.grad(result.sin().sum(), weight)[0]
        return found

    two, three, more = gradient(2), gradient(3), gradient(9)
    assert not torch.allclose(two, three)
    assert torch.equal(three, more)


def test_training_begins_with_noise_and_translation_does_not() -> None:
    encoder = encoder_of()
    x, padding = torch.randn(2, 5, 16).double(), torch.zeros(2, 1, 1, 5).double()
    runs = [encoder.train(trains)(x, Context(padding=padding))[0][0] for trains in (True, True, False, False)]
    assert not torch.allclose(runs[0], runs[1])
    assert torch.equal(runs[2], runs[3])


def test_rounds_of_updates_follow_the_papers_distribution() -> None:
    """Mean r + 1, the same for the same seed and update, and another seed draws others."""
    encoder = encoder_of(recurrence={**RECURRENCE, "rounds": 6})

    def drawn(seed: int, count: int) -> list[int]:
        draw, rounds = RoundsDraw(encoder, seed), []
        for update in range(1, count + 1):
            draw.before_update(update)
            rounds.append(encoder.training_rounds)
        return rounds

    many = drawn(1, 3000)
    assert many[:20] == drawn(1, 20)
    assert many[:20] != drawn(2, 20)
    assert abs(sum(many) / len(many) - 7) < 0.4
    # Poisson alone would have the variance 6; with the log-normal rate it is 6 + 36 (e^(1/4) - 1) = 16.2.
    assert 12 < sum((each - 7) ** 2 for each in many) / len(many) < 21
    assert min(Counter(many)) == 1
