"""Recurrences whose state is a matrix, in chunks: products inside a chunk, a recurrence between chunks.

Everything is computed in float32 at least. All exponents are sums of log decays over a stretch of positions,
so none is above 0 and nothing overflows, however fast states decay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from deepwire.ops.linear_recurrence import linear_recurrence
from deepwire.ops.over_positions import Carried, in_no_graph, is_exporting, over_positions
from deepwire.ops.precision import full_precision

# Positions of a chunk where all channels of a head decay alike, and where each has a decay of its own.
CHUNK, CHUNK_OF_CHANNELS = 64, 16
Step = Callable[..., tuple[Tensor, Tensor]]
"""A function of a state and of what one position brings: the output and the next state."""


def gated_product(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, initial: Tensor | None = None
) -> Tensor:
    """o_t = S_t^T q_t with S_t = diag(exp g_t) S_{t-1} + k_t v_t^T, for every position t.

    Gated linear attention (Yang et al. 2024, equation 3); with one decay a head, also that of Mamba-2 (Dao,
    Gu 2024, section 6).

    Args:
        query, key: `[B, ..., T, m]`, T at least 1.
        value: `[B, ..., T, n]`.
        decay: g, at most 0: `[B, ..., T, m]`, or `[B, ..., T, 1]` where all channels decay alike.
        initial: S before the first position, `[B, ..., m, n]`; None: zeros.

    Returns:
        `[B, ..., T, n]`, in float32 at least.
    """
    query, key, value, decay = _widened(query, key, value, decay)
    with full_precision(query.device.type):
        if is_exporting():  # one graph for all lengths
            return _scanned(gated_step, (query, key, value, decay), initial)[0]
        return in_no_graph(_chunked_product)(query, key, value, decay, initial)


def gated_state(key: Tensor, value: Tensor, decay: Tensor, initial: Tensor) -> Tensor:
    """S behind the last position of `gated_product`, `[B, ..., m, n]`; arguments as there."""
    key, value, decay = _widened(key, value, decay)
    with full_precision(key.device.type):
        since = decay.cumsum(-2)
        end = since[..., -1:, :]
        left = (key * (end - since).exp()).transpose(-2, -1) @ value
        return torch.addcmul(left, end.exp().transpose(-2, -1), initial.to(left.dtype))


def gated_step(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor]:
    """One position of `gated_product`: the output `[..., n]` and the next state, of float32 at least."""
    query, key, value, decay = (each.to(state.dtype) for each in (query, key, value, decay))
    state = torch.addcmul(key.unsqueeze(-1) * value.unsqueeze(-2), decay.exp().unsqueeze(-1), state)
    return _seen(query, state), state


def gated_delta_product(
    query: Tensor, key: Tensor, value: Tensor, beta: Tensor, decay: Tensor, initial: Tensor | None = None
) -> Tensor:
    """o_t = S_t^T q_t with S = exp(g_t) S_{t-1}, S_t = S + k_t (beta_t (v_t - S^T k_t))^T.

    Gated delta rule (Yang, Kautz, Hatamizadeh 2025, equation 10). What a chunk writes depends on what it
    wrote before: a triangular system gives it for all positions at once (their section 3.3).

    Shapes as in `gated_product`; beta, from 0 to 2, and decay `[B, ..., T, 1]`; keys of length 1 at most.
    """
    query, key, value, beta, decay = _widened(query, key, value, beta, decay)
    with full_precision(query.device.type):
        if is_exporting():
            return _scanned(gated_delta_step, (query, key, value, beta, decay), initial)[0]
        chunks = in_no_graph(_DeltaChunks.of)(query, key, value, beta, decay)
        return _chunked_delta(chunks, initial, query.size(-2))[0]


def gated_delta_continued(
    query: Tensor, key: Tensor, value: Tensor, beta: Tensor, decay: Tensor, initial: Tensor
) -> tuple[Tensor, Tensor]:
    """`gated_delta_product`, and S behind the last position, `[B, ..., m, n]`."""
    query, key, value, beta, decay = _widened(query, key, value, beta, decay)
    with full_precision(query.device.type):
        if is_exporting():
            return _scanned(gated_delta_step, (query, key, value, beta, decay), initial)
        chunks = _DeltaChunks.of(query, key, value, beta, decay)
        # Zeros that fill the last chunk write nothing and forget nothing.
        seen, state = _chunked_delta(chunks, initial, query.size(-2), to_the_end=True)
    assert state is not None
    return seen, state


def gated_delta_step(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, beta: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor]:
    """One position of `gated_delta_product`; shapes as in `gated_step`, beta and decay `[..., 1]`."""
    query, key, value, beta, decay = (each.to(state.dtype) for each in (query, key, value, beta, decay))
    state = decay.exp().unsqueeze(-1) * state
    written = beta * (value - _seen(key, state))
    state = torch.addcmul(state, key.unsqueeze(-1), written.unsqueeze(-2))
    return _seen(query, state), state


def _seen(query: Tensor, state: Tensor) -> Tensor:
    """S^T q."""
    with full_precision(query.device.type):
        return (query.unsqueeze(-2) @ state).squeeze(-2)


def _widened(*tensors: Tensor) -> list[Tensor]:
    wide = torch.float32
    for tensor in tensors:
        wide = torch.promote_types(wide, tensor.dtype)
    return [tensor.to(wide) for tensor in tensors]


def _scanned(step: Step, inputs: Carried, initial: Tensor | None) -> tuple[Tensor, Tensor]:
    """Position after position, with the function for one; also the state behind the last."""
    query, value = inputs[0], inputs[2]
    state = _zeros(query, value) if initial is None else initial.to(query.dtype)

    def body(carried: Carried, now: Carried) -> Carried:
        return step(carried[1], *now)

    first = (torch.zeros_like(value[..., 0, :]), state)
    outputs, last = over_positions(body, first, tuple(each.movedim(-2, 0).contiguous() for each in inputs))
    return outputs.movedim(1, -2), last[1]


def _zeros(query: Tensor, value: Tensor) -> Tensor:
    """An empty state, of queries `[..., T, m]` and values `[..., T, n]`."""
    return query.new_zeros(*query.shape[:-2], query.size(-1), value.size(-1))


def _chunks(x: Tensor, size: int) -> Tensor:
    """`[..., T, m]` as `[..., chunks, size, m]`; zeros fill the last one, which nobody sees."""
    missing = -x.size(-2) % size
    return _cut(functional.pad(x, (0, 0, 0, missing)) if missing else x, size)


def _cut(x: Tensor, *sizes: int) -> Tensor:
    """`[..., T, m]` as `[..., stretches, *sizes, m]`."""
    return x.reshape(*x.shape[:-2], -1, *sizes, x.size(-1))


def _chunked_product(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, initial: Tensor | None
) -> Tensor:
    length, alike = query.size(-2), decay.size(-1) == 1
    size = min(length, CHUNK) if alike else CHUNK_OF_CHANNELS
    query, key, value, decay = (_chunks(each, size) for each in (query, key, value, decay))
    since = decay.cumsum(-2)
    within = _within_alike if alike else _within_channels
    mixed = within(query, key, value, since)
    if query.size(-3) > 1 or initial is not None:
        end = since[..., -1:, :]
        left = (key * (end - since).exp()).transpose(-2, -1) @ value
        entering = _entering(end.exp().transpose(-2, -1), left, initial)
        mixed = mixed + (query * since.exp()) @ entering
    return mixed.flatten(-3, -2)[..., :length, :]


def _entering(keep: Tensor, left: Tensor, initial: Tensor | None) -> Tensor:
    """The state in front of each chunk, `[..., chunks, m, n]`.

    A chunk keeps `[..., chunks, m or 1, 1]` of a state, and leaves `[..., chunks, m, n]` of its own.
    """
    first = torch.zeros_like(left[..., 0, :, :]) if initial is None else initial.to(left.dtype)
    if left.size(-3) == 1:
        return first.unsqueeze(-3)
    keep, left = (each[..., :-1, :, :].movedim(-3, 0) for each in (keep.expand_as(left), left))
    later = linear_recurrence(keep, left, first)
    return torch.cat((first.unsqueeze(0), later)).movedim(0, -3)


def _between(since: Tensor) -> Tensor:
    """exp of the log decay from position s to t, `[..., t, s]`, 0 for later s; of `[..., size, 1]`."""
    size = since.size(-2)
    later = torch.ones(size, size, dtype=torch.bool, device=since.device).triu(1)
    return (since - since.transpose(-2, -1)).masked_fill(later, float("-inf")).exp()


def _within_alike(query: Tensor, key: Tensor, value: Tensor, since: Tensor) -> Tensor:
    """The sum over positions of the same chunk, where all channels decay alike."""
    return ((query @ key.transpose(-2, -1)) * _between(since)) @ value


def _within_channels(query: Tensor, key: Tensor, value: Tensor, since: Tensor) -> Tensor:
    """The sum over positions of the same chunk, where each channel has a decay of its own.

    The second half of a stretch sees the first by one product, in which queries have decayed since the middle
    and keys up to the middle. So do the halves of each half, down to single positions.
    """
    seen = ((query * key).sum(-1, keepdim=True) * value).unsqueeze(-2)  # [..., stretches, 1, n]
    half = 1
    while half < query.size(-2):
        keys, values = (_cut(each, 2, half).select(-3, 0) for each in (key, value))
        queries = _cut(query, 2, half).select(-3, 1)
        before, after = _cut(since, 2, half).unbind(-3)
        middle = before[..., -1:, :]
        scores = (queries * (after - middle).exp()) @ (keys * (middle - before).exp()).transpose(-2, -1)
        first, second = seen[..., ::2, :, :], seen[..., 1::2, :, :]
        seen = torch.cat((first, second + scores @ values), -2)
        half *= 2
    return seen.squeeze(-3)


class _DeltaChunks(NamedTuple):
    """Inputs of the recurrence between chunks, `[..., chunks, ...]`.

    Attributes:
        weights: Of all that positions of a chunk write in the sight of each, `[size, size]`.
        queries: Decayed since the chunk began, `[size, m]`.
        keys: Decayed until the chunk ends, `[size, m]`.
        written: By positions into an empty state, `[size, n]`.
        erasing: Times the state in front of the chunk: so much is written less, `[size, m]`.
        keep: The part of that state that is left at the end, `[1, 1]`.
    """

    weights: Tensor
    queries: Tensor
    keys: Tensor
    written: Tensor
    erasing: Tensor
    keep: Tensor

    @classmethod
    def of(cls, query: Tensor, key: Tensor, value: Tensor, beta: Tensor, decay: Tensor) -> _DeltaChunks:
        """From the arguments of `gated_delta_product`."""
        size, values = min(query.size(-2), CHUNK), value.size(-1)
        query, key, value, beta, decay = (_chunks(each, size) for each in (query, key, value, beta, decay))
        since = decay.cumsum(-2)
        end, between, grown = since[..., -1:, :], _between(since), since.exp()
        scaled = beta * key
        system = ((scaled @ key.transpose(-2, -1)) * between).tril(-1)  # the diagonal of ones is not read
        wanted = torch.cat((beta * value, grown * scaled), -1)
        solved = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
        return cls(
            (query @ key.transpose(-2, -1)) * between,
            query * grown,
            key * (end - since).exp(),
            solved[..., :values],
            solved[..., values:],
            end.exp(),
        )


def _chunked_delta(
    chunks: _DeltaChunks, initial: Tensor | None, length: int, *, to_the_end: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Outputs of all positions, and the state in front of the last chunk, or behind it."""
    state = None if initial is None else initial.to(chunks.written.dtype)
    results = []
    for weights, queries, keys, written, erasing, keep in zip(
        *(each.unbind(-3) for each in chunks), strict=True
    ):
        if state is not None:
            written = written - erasing @ state
        seen = weights @ written
        results.append(seen if state is None else seen + queries @ state)
        if to_the_end or len(results) * weights.size(-1) < length:
            left = keys.transpose(-2, -1) @ written
            state = left if state is None else keep * state + left
    return torch.cat(results, -2)[..., :length, :], state
