"""RMS norms, gated feed-forward, rotary positions, grouped-query attention and QK norm, against formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from deepwire.model.context import Context
from deepwire.model.embedding import RotaryConfig
from deepwire.model.kv_cache import KeyValueCache
from deepwire.model.layers import FeedForward, RMSNorm, rms_norm
from deepwire.model.mixers.self_attention import Rotary, SelfAttention
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.attention import attention
from deepwire.testing import batch, check_model, check_recomputation, small_model

MODERN = {
    "norm": "rms",
    "activation": "swiglu",
    "positions": "rotary",
    "key_value_heads": 2,
    "qk_norm": True,
    "bias": {"feed_forward": "none"},
}


@pytest.mark.parametrize(
    "settings",
    [
        {**MODERN, "activation": "geglu", "languages": {"norm": True}, "inner_norm": True},
        {**MODERN, "encoder": {"mixer": "value_residual"}, "decoder": {"mixer": "lime"}},
        {**MODERN, "encoder": {"aggregation": {"type": "mudd", "ways": 4}}},
        {**MODERN, "positions": "learned", "decoder": {"mixer": "mixed_attention"}},
        {**MODERN, "parametrization": {"type": "complete_p", "base": {"encoder_layers": 2}}},
    ],
    ids=lambda settings: "-".join(map(str, settings)),
)
def test_the_parts_do_all_that_must_hold(settings) -> None:
    """See `check_model`; layers that are computed once more have the same gradients."""
    check_model(settings)
    check_recomputation(small_model(settings))


def test_rms_norm_and_its_gradients() -> None:
    """By its formula, and by finite differences where the backward pass is our own."""
    x, gain = torch.randn(3, 5, 8).double().requires_grad_(), torch.randn(8).double().requires_grad_()
    expected = gain * x / ((x * x).mean(-1, keepdim=True) + 1e-3).sqrt()
    assert torch.allclose(rms_norm(x, gain, 1e-3), expected)
    assert torch.allclose(rms_norm(x.detach(), gain.detach(), 1e-3), expected)
    assert torch.autograd.gradcheck(lambda x, gain: rms_norm(x, gain, 1e-3), (x, gain))


@pytest.mark.parametrize("name", ["swiglu", "geglu"])
def test_gated_feed_forward_has_three_matrices_of_the_stated_width(name: str) -> None:
    """W2 (act(W1 x + b1) * (W3 x + c)) (Shazeer 2020, equation 6)."""
    network = FeedForward(4, 6, activation=name, bias="first", dropout=0.0).double()
    x = torch.randn(2, 3, 4).double()
    gate, value = (
        x @ weight.T + bias
        for weight, bias in zip(*(p.chunk(2) for p in network.input.parameters()), strict=True)
    )
    if name == "swiglu":
        active = gate / (1 + (-gate).exp())
    else:
        active = gate * 0.5 * (1 + torch.erf(gate / math.sqrt(2)))
    assert network.output.weight.shape == (4, 6)
    assert torch.allclose(network(x, Context()), (active * value) @ network.output.weight.T)


def by_complex_numbers(x: Tensor, base: float, first: int) -> Tensor:
    """RoFormer's equation 12: pair i of position t is a complex number, multiplied by exp(i t theta_i)."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    theta = base ** (-2 * torch.arange(pairs.size(-1)).double() / x.size(-1))
    angle = (first + torch.arange(x.size(-2)).double()).unsqueeze(1) * theta
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def test_rotary_positions_turn_pairs() -> None:
    """Interleaved as in the paper; in halves the same numbers lie elsewhere; one position as many."""
    x = torch.randn(2, 3, 5, 8).double()
    expected = by_complex_numbers(x, 50.0, 0)
    interleaved = Rotary(RotaryConfig(base=50, layout="interleaved"), 8)
    halves = Rotary(RotaryConfig(base=50), 8)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    assert torch.allclose(interleaved(x), expected, atol=1e-6)
    assert torch.allclose(halves(x[..., order]), expected[..., order], atol=1e-6)
    seventh = by_complex_numbers(x[..., :1, :], 50.0, 7)
    for position in (7, torch.tensor(7)):
        assert torch.allclose(interleaved(x[..., :1, :], position), seventh, atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("trains", [True, False])
def test_grouped_heads_are_repeated_heads(causal: bool, trains: bool) -> None:
    """Query head i reads key head i K / H: the same as with keys and values repeated, gradients too."""
    torch.manual_seed(0)
    for length in (5, 70):  # by both paths of attention
        q = torch.randn(2, 6, length, 4).double().requires_grad_(trains)
        k, v = (torch.randn(2, 2, length, 4).double().requires_grad_(trains) for _ in range(2))
        hidden = torch.zeros(2, 1, 1, length).double()
        hidden[0, ..., -2:] = float("-inf")
        for bias in (None, hidden, hidden.expand(2, 1, length, length)):
            found = attention(q, k, v, bias=bias, causal=causal)
            scores = q @ k.repeat_interleave(3, 1).transpose(2, 3) / 2
            scores = scores + (0 if bias is None else bias)
            if causal:
                scores = scores + torch.full((length, length), float("-inf")).triu(1)
            expected = scores.softmax(-1) @ v.repeat_interleave(3, 1)
            assert torch.allclose(found, expected, atol=1e-12)
            if trains:
                both = (torch.autograd.grad(made.sin().sum(), (q, k, v)) for made in (found, expected))
                assert all(torch.allclose(one, other) for one, other in zip(*both, strict=True))


def by_formula(x: Tensor, mixer: SelfAttention, heads: int, key_heads: int) -> Tensor:
    """Causal self-attention of one sentence `[T, d]`, head by head and word by word."""
    h = x.size(1) // heads
    wq, (wk, wv) = mixer.query.weight, mixer.key_value.weight.chunk(2)
    gains = [norm.weight for norm in (mixer.query_norm, mixer.key_norm) if isinstance(norm, RMSNorm)]

    def ready(vectors: Tensor, gain: Tensor) -> Tensor:
        normal = vectors / ((vectors**2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain
        return by_complex_numbers(normal, 10000.0, 0)

    joined = []
    for head in range(heads):
        other = head * key_heads // heads
        q = ready(x @ wq[head * h : head * h + h].T, gains[0])
        k = ready(x @ wk[other * h : other * h + h].T, gains[1])
        v = x @ wv[other * h : other * h + h].T
        rows = [torch.softmax(k[: t + 1] @ q[t] / h**0.5, 0) @ v[: t + 1] for t in range(len(x))]
        joined.append(torch.stack(rows))
    return torch.cat(joined, 1) @ mixer.output.weight.T


def test_self_attention_of_today_by_its_formula() -> None:
    """Norms of queries and keys, then turned, then two heads of queries to one of keys."""
    model = small_model({**MODERN, "positions": {"type": "rotary", "layout": "interleaved"}}).double()
    mixer = model.decoder.mixers[0]
    assert isinstance(mixer, SelfAttention)
    x = torch.randn(5, 16).double()
    with torch.no_grad():
        assert torch.allclose(mixer(x[None], Context())[0], by_formula(x, mixer, 4, 2), atol=1e-6)


def test_fewer_heads_of_keys_make_cache_memory_and_model_smaller() -> None:
    """A quarter of the heads: a quarter of the cache and of the encoder's memory."""
    plain, grouped = (small_model(settings) for settings in ({}, {"key_value_heads": 1}))
    source, target, _ = batch()

    def sizes(model: TranslationModel) -> tuple[int, int, int]:
        _, state = model.step(target[:, 0], model.start(source))
        cache = state.states[0]
        assert isinstance(cache, KeyValueCache)
        weights = sum(parameter.numel() for parameter in model.parameters())
        return cache.keys.numel(), state.context.memory[0].value.numel(), weights

    before, after = sizes(plain), sizes(grouped)
    assert (before[0], before[1]) == (4 * after[0], 4 * after[1])
    # d (d - h) numbers of keys and as many of values less, in three attentions a layer and three layers.
    assert before[2] - after[2] == 9 * 2 * 16 * (16 - 4)
