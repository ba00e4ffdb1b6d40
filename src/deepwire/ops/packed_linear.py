"""Linear maps for decoding: products with few rows, and weights of fewer bits where asked for.

A step of a search multiplies every weight by a few rows only, so most of its time goes into reading weights,
and the library behind `nn.Linear` is made for many rows (docs/howto/decoding.md, "How it is fast"). None
of these maps has parameters: they are made from the weights of a model that learns no more.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional

Packing = Literal["none", "fp16", "int8"]
"""Number format of packed weights: that of the model as it is, half precision, or bytes."""

# Up to so many rows the transposed product is faster on a CPU.
_FEW = 6
# Maps with so many outputs for an input and so many weights are faster in the layout of oneDNN: above its
# rate for few rows, at the same rate for many. Those that are not wide are slower in it for many rows.
_WIDE, _WORTH_BLOCKS = 2, 2**19
# Weights from which on kernels for fewer bits are faster: each call takes five times as long to begin.
_LARGE = 2**18
_LARGEST_HALF = 65504.0
# The kernel for half precision reads all weights again for every six rows: so many stay in a cache meanwhile.
_HALVES_AT_ONCE = 2**21
# Maps with so many outputs for an input take longer for the product than for rounding the input.
_VERY_WIDE = 8
# Inputs in eight bits with zero in the middle, weights in seven: kernels for CPUs without units for bytes add
# two products in 16 bits, which eight bits of both would overflow. Weights need them less.
_LEVELS, _ZERO, _WEIGHT_LEVELS = 127, 128, 63
_LEAST = 1e-30
# What is ignored is ignored in all threads.
_IGNORING = Lock()


class PackedLinear(nn.Module, ABC):
    """y = W x + b without gradient; maps `[..., inputs]` to `[..., outputs]`, both float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.outputs, self.inputs = weight.shape
        self._bias = None if bias is None else bias.detach()

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Map `[..., inputs]` to `[..., outputs]`."""


class PlainLinear(PackedLinear):
    """The product of `nn.Linear`, in the type of the weights; as (W x^T)^T where a CPU is given few rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self._weight = weight.detach().contiguous()
        self._column = None if self._bias is None else self._bias.unsqueeze(1)
        plain = weight.device.type == "cpu" and weight.dtype == torch.float32
        self._few = _FEW * self.inputs if plain else 0

    def forward(self, x: Tensor) -> Tensor:
        """See the base class."""
        if x.numel() > self._few:
            return functional.linear(x, self._weight, self._bias)
        columns = x.reshape(-1, self.inputs).t()
        if self._column is None:
            y = torch.mm(self._weight, columns)
        else:
            y = torch.addmm(self._column, self._weight, columns)
        # Whatever comes next wants rows that lie together.
        return y.t().contiguous().view(*x.shape[:-1], self.outputs)


class OneDnnLinear(PackedLinear):
    """The same in the layout of oneDNN, in the type of the weights; on CPUs only."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        """See the base class."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._weight, self._bias, "none", [], "")
        return y


class Float16Linear(PackedLinear):
    """Weights in half precision, all else in float32: every weight errs by at most a 2048th of itself.

    A ValueError where a weight is too large for half precision.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        if not bool(weight.abs().max() <= _LARGEST_HALF):
            raise ValueError(f"weights above {_LARGEST_HALF:.0f} do not fit half precision")
        rows = max(1, _HALVES_AT_ONCE // self.inputs)
        self._parts = [
            torch.ops.quantized.linear_prepack_fp16(
                weight[begin : begin + rows], None if self._bias is None else self._bias[begin : begin + rows]
            )
            for begin in range(0, self.outputs, rows)
        ]

    def forward(self, x: Tensor) -> Tensor:
        """See the base class."""
        parts = [torch.ops.quantized.linear_dynamic_fp16.default(x, part) for part in self._parts]
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


class Int8Linear(PackedLinear):
    """Weights in 7 bits of a byte, inputs in 8 bits, sums in 32 bits.

    Each output has its own scale of weights, and each row its own scale of inputs, so that a row's result
    does not depend on the rows beside it.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        scale = weight.abs().amax(1).clamp(min=_LEAST) / _WEIGHT_LEVELS
        zero = torch.zeros(self.outputs, dtype=torch.int64)
        with _IGNORING, warnings.catch_warnings():
            # torch means to give up tensors of this kind one day; the kernels take no other.
            warnings.simplefilter("ignore", UserWarning)
            bytes_ = torch.quantize_per_channel(weight, scale.double(), zero, 0, torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(bytes_, None)
        self._shift = torch.zeros(self.outputs) if self._bias is None else self._bias

    def forward(self, x: Tensor) -> Tensor:
        """See the base class."""
        scale = _largest(x)
        y: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default(
            x / scale, 1 / _LEVELS, _ZERO, self._packed
        )
        return torch.addcmul(self._shift, y, scale, out=y)


class OneDnnInt8Linear(PackedLinear):
    """Weights and inputs in 8 bits, sums in 32 bits: for CPUs with units for bytes, and many outputs.

    Scales as in `Int8Linear`, which rounds its inputs faster and multiplies them slower.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self._scale = weight.abs().amax(1).clamp(min=_LEAST) / _LEVELS
        self._zero = torch.zeros(self.outputs, dtype=torch.int64)
        bytes_ = (weight / self._scale.unsqueeze(1)).round().to(torch.int8)
        self._packed = torch.ops.onednn.qlinear_prepack(bytes_, None)
        self._shift = torch.zeros(self.outputs) if self._bias is None else self._bias

    def forward(self, x: Tensor) -> Tensor:
        """See the base class."""
        rows = x.reshape(-1, self.inputs)
        scale = _largest(rows)
        bytes_ = (rows * (_LEVELS / scale)).add_(_ZERO + 0.5).to(torch.uint8)
        y: Tensor = torch.ops.onednn.qlinear_pointwise.default(
            *(bytes_, 1 / _LEVELS, _ZERO, self._packed, self._scale, self._zero, None),
            *(1.0, 0, torch.float32, "none", [], ""),
        )
        return torch.addcmul(self._shift, y, scale, out=y).view(*x.shape[:-1], self.outputs)


def _largest(rows: Tensor) -> Tensor:
    """The largest magnitude of each row, `[..., 1]`, never 0."""
    return rows.abs().amax(-1, keepdim=True).clamp_(min=_LEAST)


Pack = Callable[[Tensor, Tensor | None], PackedLinear]
"""Makes a packed map of weight `[outputs, inputs]` and bias `[outputs]`, or no bias."""


@runtime_checkable
class PacksItself(Protocol):
    """A module that uses weights otherwise than by calling an `nn.Linear`, and packs them itself."""

    def pack(self, make: Pack) -> None:
        """Use maps made by `make` from now on."""
        ...


def has_kernels(packing: Packing) -> bool:
    """Whether this CPU and this build of torch can multiply weights of that format."""
    return packing == "none" or "fbgemm" in torch.backends.quantized.supported_engines


def has_bfloat16_layout() -> bool:
    """Whether oneDNN takes weights of bfloat16 in its layout on this CPU."""
    supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return supported


def has_byte_units() -> bool:
    """Whether this CPU multiplies bytes and adds the products in 32 bits (VNNI), and torch has oneDNN."""
    # torch tells nobody else, and may stop telling.
    units: bool = getattr(torch.cpu, "_is_vnni_supported", lambda: False)()
    return units and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def pack_linears(module: nn.Module, packing: Packing) -> None:
    """Replaces every linear map in `module`, in place; it cannot be trained or saved afterwards.

    Maps for which a format is no faster, or whose weights are too large for it, keep the type of the model.
    A ValueError where there are no kernels for that number format.
    """
    if not has_kernels(packing):
        raise ValueError(f"this CPU, or this build of torch, has no kernels for {packing}")
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        # Each kernel lays its weights out on one thread.
        for done in [pool.submit(replace) for replace in list(_replacements(module, _PACKERS[packing]))]:
            done.result()


def _as_it_is(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    """Number format unchanged; the layout of oneDNN where it is the faster one."""
    onednn = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if weight.dtype == torch.bfloat16:
        # Plain products of bfloat16 bring the weights into that layout at every call.
        blocks = onednn and has_bfloat16_layout()
    else:
        wide = weight.size(0) >= _WIDE * weight.size(1) and weight.numel() >= _WORTH_BLOCKS
        blocks = onednn and wide and weight.dtype == torch.float32
    return OneDnnLinear(weight, bias) if blocks else PlainLinear(weight, bias)


def _as_half(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    if weight.numel() < _LARGE:
        return _as_it_is(weight, bias)
    try:
        return Float16Linear(weight, bias)
    except ValueError:  # a weight too large for it
        return _as_it_is(weight, bias)


def _as_bytes(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    if weight.numel() < _LARGE:
        return _as_it_is(weight, bias)
    if weight.size(0) >= _VERY_WIDE * weight.size(1) and has_byte_units():
        return OneDnnInt8Linear(weight, bias)
    return Int8Linear(weight, bias)


# They do nothing with what they hold.
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_PACKERS: Mapping[Packing, Pack] = {"none": _as_it_is, "fp16": _as_half, "int8": _as_bytes}


def _replacements(module: nn.Module, make: Pack, *, known: bool = True) -> Iterator[Callable[[], None]]:
    """Calls that each replace a map, or some; in any order, by any thread.

    Other packages may read a weight of their modules, or call a map in a way of their own. So these stay,
    unless the class of the module packs them itself. `known`: the owner of `module` only calls its maps.
    """
    if not isinstance(module, _CONTAINERS):
        known = type(module).__module__.partition(".")[0] == __name__.partition(".")[0]
    if isinstance(module, PacksItself) and (known or "pack" in vars(type(module))):
        yield torch.no_grad()(partial(module.pack, make))
        return
    for name, child in module.named_children():
        if not isinstance(child, nn.Linear):
            yield from _replacements(child, make, known=known)
        elif known and _is_plain(child):
            yield torch.no_grad()(partial(_put, module, name, child, make))


def _is_plain(module: nn.Linear) -> bool:
    """Whether calling it is the product with its weight and nothing else."""
    hooks = len(module._forward_hooks) + len(module._forward_pre_hooks)
    return type(module).forward is nn.Linear.forward and "forward" not in vars(module) and not hooks


def _put(module: nn.Module, name: str, child: nn.Linear, make: Pack) -> None:
    setattr(module, name, make(child.weight, child.bias))
