from __future__ import annotations

from itertools import pairwise
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from deepwire.ops import attention as module
from deepwire.ops.attention import Spans, attention, spans
from deepwire.testing import batch, small_model


def textbook(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) / q.size(-1) ** 0.5
    if bias is not None:
        scores = scores + bias
    if causal:
        queries, keys = scores.shape[-2:]
        for t in range(queries):
            scores[:, :, t, t + keys - queries + 1 :] = -torch.inf
    return torch.einsum("bhts,bhsd->bhtd", scores.softmax(-1), v)


def operands(batch: int, heads: int, queries: int, keys: int, size: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    q = torch.randn(batch, heads, queries, size, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(batch, heads, keys, size, dtype=torch.float64, requires_grad=True) for _ in range(2))
    return q, k, v


@pytest.fixture(params=["plain", "fused"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both paths must mean the same, whichever this machine prefers."""
    chosen = request.param == "plain"
    monkeypatch.setattr(module, "_prefers_plain", lambda q, k, dropout: chosen)
    return str(request.param)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (1, 6), (3, 7), (1, 1)])
def test_both_paths_follow_the_formula_with_its_gradients(
    path: str, causal: bool, masked: bool, queries: int, keys: int
) -> None:
    torch.manual_seed(1)
    q, k, v = operands(2, 3, queries, keys)
    bias = torch.zeros(2, 1, 1, keys, dtype=torch.float64)
    if masked and keys > 1:
        bias[0, ..., -1] = -torch.inf
    used = bias if masked else None
    out, expected = attention(q, k, v, bias=used, causal=causal), textbook(q, k, v, used, causal)
    torch.testing.assert_close(out, expected)
    upstream = torch.randn_like(out)
    found = torch.autograd.grad(out, (q, k, v), upstream)
    wanted = torch.autograd.grad(expected, (q, k, v), upstream)
    torch.testing.assert_close(found, wanted)


@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    queries=st.integers(1, 70),
    keys=st.integers(1, 70),
    causal=st.booleans(),
    learns=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_the_choice_of_path_does_not_show(
    batch: int, heads: int, queries: int, keys: int, causal: bool, learns: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    causal = causal and keys >= queries
    q, k, v = operands(batch, heads, queries, keys)
    bias = torch.where(torch.rand(batch, 1, 1, keys, dtype=torch.float64) < 0.3, -torch.inf, 0.0)
    bias[..., 0] = 0
    with torch.set_grad_enabled(learns):
        out = attention(q, k, v, bias=bias, causal=causal)
    torch.testing.assert_close(out.detach(), textbook(q, k, v, bias, causal).detach())


@given(
    rows=st.integers(1, 24),
    heads=st.integers(1, 4),
    queries=st.sampled_from([1, 4, 15]),
    keys=st.integers(1, 48),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_in_bfloat16_without_gradients_it_errs_by_its_rounding(
    rows: int, heads: int, queries: int, keys: int, seed: int
) -> None:
    """As in decoding, where the number of scores decides the path: weights of 8 bits, of values around 1."""
    torch.manual_seed(seed)
    q, k, v = (x.detach().bfloat16() for x in operands(rows, heads, queries, keys))
    bias = torch.where(torch.rand(rows, 1, 1, keys, dtype=torch.float64) < 0.3, -torch.inf, 0.0)
    bias[..., 0] = 0
    with torch.no_grad():
        out = attention(q, k, v, bias=bias.bfloat16(), causal=False)
    assert out.dtype == torch.bfloat16
    exact = textbook(q.double(), k.double(), v.double(), bias, False)
    torch.testing.assert_close(out.double(), exact, rtol=0.02, atol=0.04)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_a_row_that_sees_nothing_is_finite_and_so_are_its_gradients(
    path: str, dtype: torch.dtype, causal: bool
) -> None:
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in operands(2, 2, 4, 4))
    bias = torch.zeros(2, 1, 1, 4)
    bias[1] = -torch.inf
    out = attention(q, k, v, bias=bias, causal=causal)
    out.float().square().sum().backward()
    assert out.isfinite().all()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (q, k, v))


def test_dropout_keeps_the_mean_and_follows_the_seed() -> None:
    torch.manual_seed(3)
    q, k, v = (x.detach() for x in operands(64, 4, 8, 8))
    expected = attention(q, k, v, bias=None, causal=False)
    total = torch.zeros_like(expected)
    for _ in range(200):
        total += attention(q, k, v, bias=None, causal=False, dropout=0.2)
    assert (total / 200 - expected).abs().mean() < 0.02
    torch.manual_seed(4)
    first = attention(q, k, v, bias=None, causal=False, dropout=0.2)
    torch.manual_seed(4)
    again = attention(q, k, v, bias=None, causal=False, dropout=0.2)
    assert torch.equal(first, again)
    assert not torch.equal(first, attention(q, k, v, bias=None, causal=False, dropout=0.2))


@pytest.mark.parametrize("causal", [False, True])
def test_a_gpu_does_not_take_the_kernel_that_plans_for_every_shape(monkeypatch, causal: bool) -> None:
    enabled = []

    def seen(q: Tensor, *_: object, **__: object) -> Tensor:
        enabled.append(torch.backends.cuda.cudnn_sdp_enabled())
        return q

    monkeypatch.setattr(module.functional, "scaled_dot_product_attention", seen)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with FakeTensorMode():
        q = torch.empty(2, 4, 5, 8, device="cuda")
        attention(q, q, q, bias=None, causal=causal)
        attention(q, q, q, bias=torch.zeros(2, 1, 1, 5, device="cuda"), causal=causal)
        with module.few_shapes():
            attention(q, q, q, bias=None, causal=causal)
    assert enabled == [False, False, before]
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


def by_sentence(
    q: Tensor, k: Tensor, v: Tensor, spans: Spans, longest_q: int, longest_k: int, dropout: float
) -> Tensor:
    """The kernel of a GPU, one sequence after the other."""
    assert not dropout
    mixed = torch.zeros_like(q)
    ends = zip(*(each.tolist() for each in spans), strict=True)
    for (first, below), (end, above) in pairwise(ends):
        assert end - first <= longest_q
        assert above - below <= longest_k
        one = (x.transpose(0, 1)[None] for x in (q[first:end], k[below:above], v[below:above]))
        mixed[first:end] = attention(*one, bias=None, causal=False)[0].transpose(0, 1)
    return mixed


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (4, 2)])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 7)])
def test_spans_say_the_same_as_a_bias_of_padding(
    monkeypatch: pytest.MonkeyPatch, heads: int, key_heads: int, queries: int, keys: int
) -> None:
    """Itself and another sequence, with gradients that do not reach padding."""
    torch.manual_seed(1)
    q = operands(3, heads, queries, keys)[0]
    k, v = operands(3, key_heads, queries, keys)[1:]
    words = torch.arange(keys) < torch.tensor([[keys], [2], [1]])
    bias = torch.zeros(3, 1, 1, keys, dtype=torch.float64).masked_fill(~words[:, None, None], -torch.inf)
    expected = attention(q, k, v, bias=bias, causal=False)
    monkeypatch.setattr(module, "_has_span_kernel", lambda device: True)
    monkeypatch.setattr(module, "_SPAN_TYPES", (torch.float64,))
    monkeypatch.setattr(module, "_span_kernel", by_sentence)
    found = attention(q, k, v, bias=None, causal=False, spans=spans(words, queries))
    torch.testing.assert_close(found, expected)
    upstream = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(each, (q, k, v), upstream) for each in (found, expected))
    torch.testing.assert_close(ours, theirs)
    assert not ours[1].transpose(1, 2)[~words].any()


def test_a_row_without_words_is_seen_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_has_span_kernel", lambda device: True)
    found = spans(torch.tensor([[True, False], [False, False]]), 3)
    assert found is not None
    assert [ends.tolist() for ends in found] == [[0, 3, 3, 6, 6], [0, 1, 2, 4, 4]]


@pytest.mark.parametrize("encoder", ["self_attention", "luna"])
def test_in_a_model_they_are_of_what_is_attended_to(monkeypatch: pytest.MonkeyPatch, encoder: str) -> None:
    """Luna's mixers read what they packed, without padding. Decoding does without spans."""
    model = small_model({"encoder": {"mixer": encoder}}).double()

    def loss_and_gradients() -> tuple[Tensor, ...]:
        loss = model.loss(*batch()).smoothed
        return loss, *torch.autograd.grad(loss, list(model.parameters()))

    expected = loss_and_gradients()
    kernel = Mock(side_effect=by_sentence)
    monkeypatch.setattr(module, "_has_span_kernel", lambda device: True)
    monkeypatch.setattr(module, "_takes_spans", lambda q, v: True)
    monkeypatch.setattr(module, "product_type", lambda v: v.dtype)
    monkeypatch.setattr(module, "_span_kernel", kernel)
    torch.testing.assert_close(loss_and_gradients(), expected)
    assert kernel.call_count == (6 if encoder == "self_attention" else 3)
    assert all(memory.spans is None for memory in model.start(batch()[0]).context.memory)
