"""Output projection and label-smoothed cross-entropy in one pass over the vocabulary.

The logits of all tokens, [N, V], are by far the largest thing a training step would hold. Here they exist for
one chunk of tokens at a time, and the gradients are taken while the chunk is there: the loss is a plain sum,
so they are known up to one factor, the gradient that arrives later. No product is computed twice.

With logits z = W h + c, a smoothed target distribution a * onehot(t) + b covers both published forms. As
a + b V = 1, a token's loss is logsumexp(z) - a z_t - b sum(z) and its gradient softmax(z) - a onehot(t) - b.
The terms in b need no pass over the logits: sum(z) = (sum_v W_v) h + sum(c), and likewise for the gradients.
Label smoothing: Szegedy et al. 2016 (Rethinking the Inception Architecture), section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from deepwire.ops.precision import product_type

# Logits held at a time. On a CPU they should stay in the cache between the passes over them; a GPU needs
# large products to be busy (docs/understand/speed.md).
CPU_LOGITS = 4 * 2**20
# Products with fewer rows than this are slower than the cache is worth.
LEAST_TOKENS = 256
# The rows of a chunk's products are a multiple of this, those added all zero. The number of real tokens is
# another one in every batch, and making products ready for a new shape takes longer than so few rows.
ROWS = 32
GPU_LOGITS = 64 * 2**20
# The weights' gradient is read and written for each chunk, so a GPU takes fewer and larger ones where it has
# memory: as many logits as a 512th of its bytes are less than 1 % of it.
GPU_SHARE = 512


def on_cpu(x: Tensor) -> bool:
    """Whether a tensor is in the memory of the CPU, where passes over a cache pay more than fewer passes."""
    return x.device.type == "cpu"


def chunk_size(weight: Tensor) -> int:
    """Return how many tokens to take at a time for an output projection `[V, d]`."""
    logits = CPU_LOGITS if on_cpu(weight) else GPU_LOGITS
    if weight.device.type == "cuda":
        memory = torch.cuda.get_device_properties(weight.device).total_memory
        logits = max(GPU_LOGITS, memory // GPU_SHARE)
    return max(LEAST_TOKENS, logits // weight.size(0) // ROWS * ROWS)


def autocast_types(hidden: Tensor) -> tuple[torch.dtype, torch.dtype]:
    """Return the type of the products and that of sums and softmax."""
    return product_type(hidden), torch.promote_types(hidden.dtype, torch.float32)


class LossContext(FunctionCtx):
    """The context between forward and backward pass, with the gradients."""

    saved_tensors: tuple[Tensor | None, ...]


def scaled(gradients: Sequence[Tensor | None], grad: Tensor) -> tuple[Tensor | None, ...]:
    """Multiply the gradients of a sum by the one that arrives for it; None stays None."""
    return tuple(None if kept is None else kept * grad.to(kept.dtype) for kept in gradients)


def sum_of_rows(x: Tensor, wide: torch.dtype) -> Tensor:
    """`[N, V]` added up to `[V]`, in the type `wide` or, like the weights' gradient, rounded to that of x."""
    if x.dtype == wide or not on_cpu(x):
        return x.sum(0, dtype=wide)
    # torch would write all of it anew in the wider type first; a product adds in float32 as it reads.
    return (x.new_ones(1, x.size(0)) @ x).squeeze(0)


def row_maximum(x: Tensor) -> Tensor:
    """The largest number of each row of `[N, V]`, `[N, 1]`."""
    if x.dtype != torch.bfloat16 or not on_cpu(x):
        return x.amax(1, keepdim=True)
    # torch widens every bfloat16 first. Their bits as integers are ordered like the numbers if these are
    # positive, the other way round if they are negative: a seventh of the time.
    bits = x.view(torch.int16)
    largest = bits.amax(1, keepdim=True)
    return torch.where(largest >= 0, largest, bits.amin(1, keepdim=True)).view(torch.bfloat16)


SmoothingForm = Literal["uniform_wrong", "uniform"]

# On a CPU, chunks that share one product for the weights' gradient where that product is rounded and then
# added: the sum `[V, d]` is larger than what a chunk reads for it, and is read and written every time.
CHUNKS_PER_PRODUCT = 4


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    smoothing: float,
    form: SmoothingForm = "uniform_wrong",
    ignore: int | None = None,
    weights: Tensor | None = None,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum the label-smoothed cross-entropy of the targets without holding all logits.

    Under autocast the products run in its type and the probabilities are rounded to it; softmax, sums and the
    weights' gradient stay float32.

    Args:
        hidden: What the decoder says of each target token, `[N, d]`.
        weight: Output projection `[V, d]`; may be the embedding matrix.
        bias: Output bias `[V]`, or None.
        target: Token ids `[N]`, int64.
        smoothing: The probability mass taken from the true token, at least 0 and below 1.
        form: Who receives that mass: "uniform_wrong" gives it to the V - 1 other tokens, "uniform" to all V.
        ignore: Tokens with this target (padding) count nothing and cost next to nothing.
        weights: How often each token counts in the sums, `[N]`; once without.
        chunk: Tokens taken at a time; chosen by device and vocabulary when None.

    Returns:
        The smoothed loss, a scalar in nats summed over tokens, differentiable once with respect to hidden,
        weight, bias and weights; and the sum of the plain negative log-likelihoods, detached.

    Raises:
        ValueError: smoothing or form is none of the above.
    """
    on_target, on_each = smoothing_masses(smoothing, form, weight.size(0))
    if ignore is not None and not on_cpu(hidden):
        # To learn how many tokens are real the host would have to wait for the device.
        weights, ignore = without_ignored(target, ignore, weights, autocast_types(hidden)[1]), None
    cast, _ = autocast_types(hidden)
    size = chunk if chunk is not None else chunk_size(weight)
    inputs = (hidden, weight, bias, weights)
    learns = [torch.is_grad_enabled() and x is not None and x.requires_grad for x in inputs]
    arguments = (*inputs, target, on_target, on_each, ignore, size, cast, learns)
    smoothed, nll = _LinearCrossEntropy.apply(*arguments)  # type: ignore[no-untyped-call]
    return smoothed, nll


def linear_log_prob(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, chunk: int | None = None
) -> Tensor:
    """Return the log-probability of each target, `[N]` float32 (float64 for such input), without gradient.

    Arguments as in `linear_cross_entropy`.
    """
    size = chunk if chunk is not None else chunk_size(weight)
    with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
        cast, wide = autocast_types(hidden)
        matrix = weight.to(cast)
        picked = []
        for rows, ids in zip(torch.split(hidden, size), torch.split(target, size), strict=True):
            logits = _logits(rows.to(cast), matrix, bias).to(wide)
            picked.append(logits.gather(1, ids.unsqueeze(1)).squeeze(1) - logits.logsumexp(1))
    return torch.cat(picked) if picked else hidden.new_zeros(0, dtype=wide)


def smoothing_masses(smoothing: float, form: SmoothingForm, vocabulary: int) -> tuple[float, float]:
    """Return (a, b) of the target distribution a * onehot + b; a + b * vocabulary = 1."""
    if not 0 <= smoothing < 1:
        raise ValueError(f"label smoothing must be at least 0 and below 1, not {smoothing}")
    if form not in get_args(SmoothingForm):
        raise ValueError(f"label smoothing form must be one of {get_args(SmoothingForm)}, not {form!r}")
    if form == "uniform" or vocabulary == 1:
        return 1 - smoothing, smoothing / vocabulary
    each = smoothing / (vocabulary - 1)
    return 1 - smoothing - each, each


def without_ignored(target: Tensor, ignore: int, weights: Tensor | None, kind: torch.dtype) -> Tensor:
    """`weights` `[N]` with 0 where the target is `ignore`: such tokens are computed, and count nothing."""
    real = (target != ignore).to(kind)
    return real if weights is None else weights * real


class _LinearCrossEntropy(torch.autograd.Function):
    """The loss and, while the logits are there, its gradients; backward only multiplies them."""

    @staticmethod
    def forward(
        ctx: LossContext,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        weights: Tensor | None,
        target: Tensor,
        on_target: float,
        on_each: float,
        ignore: int | None,
        chunk: int,
        cast: torch.dtype,
        learns: list[bool],
    ) -> tuple[Tensor, Tensor]:
        smoothed, nll, *gradients = _loss_and_gradients(
            hidden, weight, bias, weights, target, on_target, on_each, ignore, chunk, cast, learns
        )
        ctx.save_for_backward(*gradients)  # type: ignore[arg-type]  # torch takes None too
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: LossContext, grad: Tensor, _nll_grad: Tensor) -> tuple[Tensor | None, ...]:
        return (*scaled(ctx.saved_tensors, grad), *(None,) * 7)


def _loss_and_gradients(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    weights: Tensor | None,
    target: Tensor,
    on_target: float,
    on_each: float,
    ignore: int | None,
    chunk: int,
    cast: torch.dtype,
    learns: list[bool],
) -> tuple[Tensor, Tensor, *tuple[Tensor | None, ...]]:
    """Return (smoothed sum, nll sum) and the gradients of hidden, weight, bias and weights that learn."""
    real = None if ignore is None else (target != ignore).nonzero().squeeze(1)
    rows = hidden if real is None else hidden.index_select(0, real)
    ids = target if real is None else target.index_select(0, real)
    counts = weights if real is None or weights is None else weights.index_select(0, real)
    with torch.autocast(hidden.device.type, enabled=False):
        work = _ChunkSums(rows, weight, bias, counts, cast, learns, chunk)
        for start in range(0, rows.size(0), chunk):
            work.add(start, min(start + chunk, rows.size(0)), ids, on_target)
        smoothed = work.finish(on_target, on_each)
    gradients: list[Tensor | None] = []
    for owner, gradient in (
        (hidden, work.hidden_grad),
        (weight, work.weight_grad),
        (bias, work.bias_grad),
        (weights, work.weights_grad),
    ):
        if owner is not None and gradient is not None:
            gradient = gradient.to(owner.dtype)
            if real is not None and (owner is hidden or owner is weights):  # 0 at other tokens
                gradient = torch.zeros_like(owner).index_copy_(0, real, gradient)
        gradients.append(gradient)
    return smoothed, work.nll, *gradients


class _ChunkSums:
    """Sums and gradients that grow chunk by chunk."""

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        weights: Tensor | None,
        cast: torch.dtype,
        needs: list[bool],
        chunk: int,
    ) -> None:
        self.cast, self.wide = cast, autocast_types(hidden)[1]
        self.hidden, self.weight, self.bias = hidden, weight, bias
        self.counts = None if weights is None else weights.detach().to(self.wide)
        rows = hidden.to(self.cast)
        # Zeros behind the last token fill a whole number of steps.
        self.rows, self.matrix = functional.pad(rows, (0, 0, 0, -len(rows) % ROWS)), weight.to(self.cast)
        self.nll = hidden.new_zeros((), dtype=self.wide)
        self.target_logits = hidden.new_zeros((), dtype=self.wide)
        self.hidden_grad = torch.empty_like(hidden) if needs[0] else None
        self.weight_grad = torch.zeros_like(weight, dtype=self.wide) if needs[1] else None
        self.bias_grad = torch.zeros_like(bias, dtype=self.wide) if bias is not None and needs[2] else None
        self.weights_grad = None if self.counts is None or not needs[3] else torch.empty_like(self.counts)
        self.learns = any(needs)
        # Gradients of the logits of chunks that wait for their product, and the first token of these chunks.
        self.pending, self.first, self.per_product = None, 0, CHUNKS_PER_PRODUCT * chunk
        if needs[1] and self.cast != self.wide and on_cpu(hidden):
            room = min(self.rows.size(0), CHUNKS_PER_PRODUCT * chunk + ROWS)
            self.pending = self.rows.new_empty(room, weight.size(0))

    def add(self, start: int, end: int, target: Tensor, on_target: float) -> None:
        """Take tokens start to end: their loss, and every gradient term but those in b."""
        # With rows of zeros behind the last token, which nothing but the products sees.
        rows = self.rows[start : end if end < self.hidden.size(0) else None]
        ids = target[start:end].unsqueeze(1)
        real = end - start
        filled = start - self.first
        place = None if self.pending is None else self.pending[filled : filled + rows.size(0)]
        logits = _logits(rows, self.matrix, self.bias, place)
        at_target = logits[:real].gather(1, ids).to(self.wide)
        real_logits = logits[:real]
        top, place_of_top = (
            (row_maximum(real_logits), None) if on_cpu(logits) else real_logits.max(1, keepdim=True)
        )
        # In one pass: it computes in float32 at least, whatever it reads and writes. In place where it is
        # certain that every number is read before it is overwritten.
        logit_grads = torch.softmax(logits, 1, out=logits if on_cpu(logits) else None)
        # The logsumexp, from the largest probability, as that of the target may be too small for its type.
        probabilities = logit_grads[:real]
        likeliest = (
            row_maximum(probabilities) if place_of_top is None else probabilities.gather(1, place_of_top)
        )
        nll = top.to(self.wide) - likeliest.to(self.wide).log() - at_target
        if self.weights_grad is not None:
            self.weights_grad[start:end] = (nll + (1 - on_target) * at_target).squeeze(1)
        counts = None if self.counts is None else self.counts[start:end].unsqueeze(1)
        self.nll += (nll if counts is None else counts * nll).sum()
        self.target_logits += (at_target if counts is None else counts * at_target).sum()
        if not self.learns:
            return
        logit_grads[real:] = 0
        logit_grads[:real].scatter_add_(1, ids, torch.full_like(ids, -on_target, dtype=logit_grads.dtype))
        times = None
        if counts is not None and on_cpu(logits):
            logit_grads[:real].mul_(counts)
        elif counts is not None:
            # Not in the logits, which would be read and written once more, but in what is made of them.
            times = functional.pad(counts, (0, 0, 0, rows.size(0) - real))
        if self.bias_grad is not None and times is not None:
            self.bias_grad += (times.t().to(self.cast) @ logit_grads).squeeze(0)
        elif self.bias_grad is not None:
            self.bias_grad += sum_of_rows(logit_grads, self.wide)
        if self.hidden_grad is not None:
            of_rows = logit_grads @ self.matrix
            self.hidden_grad[start:end] = (of_rows if times is None else of_rows * times)[:real]
        if self.weight_grad is None:
            return
        if self.pending is not None:
            if end < self.hidden.size(0) and end - self.first < self.per_product:
                return
            rows = self.rows[self.first : start + rows.size(0)]
            logit_grads, self.first = self.pending[: rows.size(0)], end
        if times is not None:
            rows = (rows * times).to(self.cast)
        if self.cast == self.wide:
            self.weight_grad.addmm_(logit_grads.t(), rows)
        else:
            self.weight_grad += logit_grads.t() @ rows

    def finish(self, on_target: float, on_each: float) -> Tensor:
        """Add the terms in b to the gradients and return the smoothed sum."""
        if on_each == 0:
            return self.nll.clone()
        counts = self.counts
        column_sum = self.weight.sum(0, dtype=self.wide)
        tokens: int | Tensor = self.hidden.size(0) if counts is None else counts.sum()
        row_sum = (
            self.hidden.sum(0, dtype=self.wide) if counts is None else counts @ self.hidden.to(self.wide)
        )
        all_logits = row_sum @ column_sum
        if self.bias is not None:
            all_logits = all_logits + tokens * self.bias.sum(dtype=self.wide)
        if self.hidden_grad is not None:
            each = column_sum if counts is None else counts.unsqueeze(1) * column_sum
            self.hidden_grad.sub_((on_each * each).to(self.hidden_grad.dtype))
        if self.weights_grad is not None:
            self.weights_grad.sub_(on_each * (self.hidden.to(self.wide) @ column_sum))
            if self.bias is not None:
                self.weights_grad.sub_(on_each * self.bias.sum(dtype=self.wide))
        if self.weight_grad is not None:
            self.weight_grad.sub_(on_each * row_sum)
        if self.bias_grad is not None:
            self.bias_grad.sub_(on_each * tokens)
        # logsumexp summed over tokens is nll + target logits.
        return self.nll + (1 - on_target) * self.target_logits - on_each * all_logits


def _logits(rows: Tensor, matrix: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
    bias = None if bias is None else bias.to(rows.dtype)
    if out is None:
        return functional.linear(rows, matrix, bias)
    if bias is None:
        return torch.mm(rows, matrix.t(), out=out)
    return torch.addmm(bias, rows, matrix.t(), out=out)
