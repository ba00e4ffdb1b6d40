"""Scaled dot-product attention by the faster of two equal paths.

Vaswani et al. 2017 (Attention Is All You Need), equation 1: softmax(Q K^T / sqrt(h)) V. The fused kernel
never holds the T x S scores and is the faster one in most places. On a CPU it is not where weights are
dropped (it falls back to slower steps), nor in the backward pass of short sentences, nor where oneDNN
computes the many small products within it, in bfloat16 or float32 (docs/understand/speed.md).

On a GPU it is any kernel but cuDNN's, which torch prefers on some: cuDNN plans anew for every shape, about
20 ms each time (H200), and batches of sentences and steps of decoding have ever new shapes. Where few shapes
come again and again, `few_shapes` allows it. A bias rules out the fastest kernel there: where it only hides
padding, `Spans` say in its place where the words are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from deepwire.ops.dropout import dropout as drop
from deepwire.ops.precision import product_type

# Scores T x S of a head up to which the plain path is the faster one when a CPU trains without dropout.
PLAIN_SCORES = 64 * 64
# Scores of all heads of a batch for which, without gradients, steps that call oneDNN once are faster than a
# kernel that calls it for each piece: below, they take longer to begin; above, they would take much memory.
ONEDNN_SCORES = range(2**10 + 1, 2**26)
# A list, as torch's compiler wants it.
_WITHOUT_PLANS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_FEW_SHAPES: ContextVar[bool] = ContextVar("few_shapes", default=False)


# Of the kernel that takes spans: number formats, and what the width of a head is a multiple of, and its most.
_SPAN_TYPES = (torch.float16, torch.bfloat16)
_SPAN_WIDTH, _SPAN_MOST = 8, 256


class Spans(NamedTuple):
    """Where queries and keys of padded rows begin and end, if rows `[B, T]` and `[B, S]` follow each other.

    A row is two sequences: all of its queries with its words, and no query with its padding. So nothing is
    gathered, and no size depends on the text.

    Attributes:
        queries: `[2 B + 1]` int32, from 0 to B T.
        keys: `[2 B + 1]` int32, from 0 to B S.
    """

    queries: Tensor
    keys: Tensor


def spans(words: Tensor, queries: int) -> Spans | None:
    """The spans of keys `[B, S]`, True at words, with padding on the right; None where no kernel takes them.

    Args:
        words: A row without any is seen whole.
        queries: T, of each row.
    """
    if not _has_span_kernel(words.device):
        return None
    rows, length = words.shape
    count = words.sum(1)
    first = torch.arange(rows, device=words.device)
    keys = torch.stack((first * length + torch.where(count == 0, length, count), (first + 1) * length), 1)
    ends = torch.stack((keys, ((first + 1) * queries).unsqueeze(1).expand(-1, 2))).flatten(1)
    of_keys, of_queries = functional.pad(ends, (1, 0)).int()
    return Spans(of_queries, of_keys)


@cache
def _has_span_kernel(device: torch.device) -> bool:
    """Whether a GPU has the kernel, and it finds what the steps without it do, also for gradients."""
    if device.type != "cuda":
        return False
    wave = torch.arange(2 * 2 * 4 * 5 * 16, device=device).sin().bfloat16().view(4, 2, 2, 5, 16)
    words = torch.arange(5, device=device) < torch.tensor([[3], [5]], device=device)
    bias = finite_bias((~words)[:, None, None].float() * -torch.inf, wave.dtype).nan_to_num()
    ends = torch.tensor([[0, 5, 5, 10, 10], [0, 3, 5, 10, 10]], dtype=torch.int32, device=device)

    def outcome(fast: bool) -> list[Tensor]:
        q, k, v, above = wave.clone().requires_grad_().unbind()
        out = (
            _over_spans(q, k, v, Spans(*ends), 0.0)
            if fast
            else head_product(attention_weights(q, k, bias=bias, causal=False), v)
        )
        return [out, *torch.autograd.grad(out, (q, k, v), above)]

    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cuda", enabled=False):
            return all(
                map(partial(torch.allclose, atol=0.05, rtol=0.05), outcome(fast=True), outcome(fast=False))
            )
    except RuntimeError:
        return False


@contextmanager
def few_shapes() -> Iterator[None]:
    """Within the block a GPU may plan for a shape, and a CPU chooses no kernel by it."""
    before = _FEW_SHAPES.set(True)
    try:
        yield
    finally:
        _FEW_SHAPES.reset(before)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | None,
    causal: bool,
    dropout: float = 0.0,
    finite: bool = False,
    spans: Spans | None = None,
) -> Tensor:
    """Attend from every query to every key it may see.

    Args:
        q: Queries `[B, H, T, h]`; scaled here by `h ** -0.5`.
        k: Keys `[B, K, S, h]`. Heads K of keys divide those of queries: query head i reads key head i K / H
            (grouped-query attention; Ainslie et al. 2023).
        v: Values `[B, K, S, h]`.
        bias: Added to the scaled scores, broadcastable to `[B, H, T, S]`; -inf at what may not be seen.
        causal: Query t sees keys 0 to t + S - T only (with T = S: itself and its past).
        dropout: Probability with which an attention weight is dropped; pass 0 outside training.
        finite: Whether the bias is one of `finite_bias` and need not be made so at every call.
        spans: Say the same as the bias, if it only hides padding; without causal order.

    Returns:
        `[B, H, T, h]`. A query that may see nothing (padding) gets the mean of all values, never NaN.
    """
    if spans is not None and _takes_spans(q, v):
        return _over_spans(q, k, v, spans, dropout)
    if bias is not None and not (finite and bias.dtype == q.dtype):
        bias = finite_bias(bias, q.dtype)
    if torch.compiler.is_compiling():
        k, v = _repeated(k, q.size(1)), _repeated(v, q.size(1))
    if _prefers_plain(q, k, dropout):
        weights = attention_weights(q, k, bias=bias, causal=causal, dropout=dropout, finite=True)
        return head_product(weights, v)
    return _fused(q, k, v, bias, causal, dropout)


def attention_weights(
    q: Tensor, k: Tensor, *, bias: Tensor | None, causal: bool, dropout: float = 0.0, finite: bool = False
) -> Tensor:
    """The weights `[B, H, T, S]` with which `attention` sums the values; arguments as there.

    For what else is done with them: forming them takes more memory than `attention` does.
    """
    if bias is not None and not (finite and bias.dtype == q.dtype):
        bias = finite_bias(bias, q.dtype)
    # Scaling the queries touches T x h numbers, scaling the scores would touch T x S. Keys that lie in some
    # other order are copied for the product: row by row here, and not number by number there.
    scores = head_product(q * q.size(-1) ** -0.5, k.contiguous().transpose(-2, -1))
    mask = _merged_bias(bias, causal, q, k)
    if mask is not None:
        scores += mask
    return drop(functional.softmax(scores, dim=-1), dropout, training=True)


def head_product(a: Tensor, b: Tensor) -> Tensor:
    """The product of `[B, H, T, n]` and `[B, K, n, m]`, `[B, H, T, m]`; heads as in `attention`.

    Heads that read the same one become further rows of it, so that nothing is repeated.
    """
    if torch.compiler.is_compiling():
        b = _repeated(b, a.size(1))
    if a.size(1) == b.size(1):
        return torch.matmul(a, b)
    return torch.matmul(_together(a, b.size(1)), b).view(*a.shape[:-1], b.size(-1))


def _repeated(x: Tensor, heads: int) -> Tensor:
    """Heads `[B, K, n, m]`, each as often as it is read: for graphs, which `_together` ties to a length."""
    if x.size(1) == heads:
        return x
    return x.index_select(1, torch.arange(heads, device=x.device) // (heads // x.size(1)))


def _together(x: Tensor, heads: int) -> Tensor:
    """Heads `[B, H, T, n]` as rows of fewer: `[B, heads, H / heads * T, n]`."""
    rows, all_heads, length, width = x.shape
    return x.reshape(rows, heads, all_heads // heads * length, width)


def lowest(dtype: torch.dtype) -> float:
    """A bias that hides a key; finite, so that a row that sees nothing is not NaN."""
    return torch.finfo(dtype).min / 4


def finite_bias(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias in the type of the queries, with `lowest` in the place of -inf."""
    return bias.to(dtype).clamp(min=lowest(dtype))


def _prefers_plain(q: Tensor, k: Tensor, dropout: float) -> bool:
    if q.device.type != "cpu":
        return False
    if dropout > 0:
        return True
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad):
        # A graph serves every length.
        return torch.compiler.is_compiling() or q.size(-2) * k.size(-2) <= PLAIN_SCORES
    onednn = q.dtype == torch.bfloat16 or torch.get_float32_matmul_precision() != "highest"
    onednn = onednn and q.shape[:-1].numel() * k.size(-2) in ONEDNN_SCORES
    return onednn and (torch.compiler.is_compiling() or not _FEW_SHAPES.get())


def _takes_spans(q: Tensor, v: Tensor) -> bool:
    width = q.size(-1)
    return width % _SPAN_WIDTH == 0 and width <= _SPAN_MOST and product_type(v) in _SPAN_TYPES


def _over_spans(q: Tensor, k: Tensor, v: Tensor, spans: Spans, dropout: float) -> Tensor:
    """`attention` by the kernel that takes spans; shapes as there."""
    rows, heads, length, _ = q.shape
    queries, keys, values = (each.transpose(1, 2).flatten(0, 1).to(product_type(v)) for each in (q, k, v))
    mixed = _span_kernel(queries, keys, values, spans, length, k.size(2), dropout)
    return mixed.view(rows, length, heads, -1).transpose(1, 2)


def _span_kernel(
    q: Tensor, k: Tensor, v: Tensor, spans: Spans, longest_q: int, longest_k: int, dropout: float
) -> Tensor:
    """Attend from queries `[B T, H, h]` to keys `[B S, K, h]` of the same sequence.

    torch's function for this, `varlen_attn`, calls the same, and drops no weights.
    """
    mixed: Tensor = torch.ops.aten._flash_attention_forward(
        q, k, v, spans.queries, spans.keys, longest_q, longest_k, dropout, False, False
    )[0]
    return mixed


def _fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, dropout: float) -> Tensor:
    grouped = q.size(1) != k.size(1)
    if causal and bias is None and q.size(-2) == k.size(-2):
        return _kernel(q, k, v, None, dropout, causal=True, grouped=grouped)
    mask = _merged_bias(bias, causal, q, k)
    if grouped and (mask is None or mask.shape[-3:-1] == (1, 1)):
        # A mask for all heads and queries alike: heads that read the same keys become further queries of one.
        seen = _kernel(_together(q, k.size(1)), k, v, mask, dropout)
        return seen.contiguous().view(*q.shape[:-1], v.size(-1))
    return _kernel(q, k, v, mask, dropout, grouped=grouped)


def _kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    *,
    causal: bool = False,
    grouped: bool = False,
) -> Tensor:
    """torch's fused kernel, on a GPU one that needs no plan, unless it is for `few_shapes`."""
    any_kernel = q.device.type != "cuda" or (not torch.compiler.is_compiling() and _FEW_SHAPES.get())
    with nullcontext() if any_kernel else sdpa_kernel(_WITHOUT_PLANS):
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, enable_gqa=grouped
        )


def _merged_bias(bias: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> Tensor | None:
    """One finite bias for both masks, that of a causal order being 0 where a key may be seen."""
    queries, keys = q.size(-2), k.size(-2)
    if not causal or queries == 1:
        return bias
    future = torch.full((queries, keys), lowest(q.dtype), dtype=q.dtype, device=q.device)
    future.triu_(keys - queries + 1)
    return future if bias is None else bias + future
