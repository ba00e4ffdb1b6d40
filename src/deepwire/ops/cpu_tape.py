"""Steps of a decoder recorded on a CPU, and carried out again by one call of compiled C.

A step of a small model is some hundred operations of about a microsecond, and torch takes several to begin
one. The tape is the list of what a step did in float32, with the addresses of its tensors; `cpu_tape.c` goes
through it. What it does not know is left to torch, in its place. Sums have another order than torch's, so
numbers differ by rounding.

Without a C compiler there is no tape (`compiled_c`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from deepwire.ops.compiled_c import compiled_library

Result = TypeVar("Result")
Numbers = npt.NDArray[Any]
_Record = Callable[..., Tensor | None]

_SOURCE = Path(__file__).with_suffix(".c")
# Outputs of float and of byte weights come in multiples of these.
_PANELS, _EIGHTS, _MOST_AXES = 32, 16, 6
# In the order of `map` in the C file, as torch calls them.
_FUNCTIONS = (
    *("clone", "add", "sub", "mul", "div", "neg", "relu", "sigmoid", "tanh", "silu", "gelu", "exp", "sqrt"),
    *("rsqrt", "square", "addcmul", "glu", "abs", "maximum", "sum", "amax"),
)
_OF_PARTS = torch._C.DispatchKey.CompositeImplicitAutograd
_ELEMENTWISE, _LINEAR, _ATTENTION, _SOFTMAX, _NORM, _ROWS, _PUT, _BYTES = range(8)


@cache
def library() -> ctypes.CDLL | None:
    """The compiled C file; None where no compiler makes one."""
    found = compiled_library(_SOURCE, "-fopenmp")
    if found is not None:
        found.top_k.argtypes = (*[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 4, *[ctypes.c_void_p] * 2)
        found.run.argtypes = (ctypes.c_void_p, ctypes.c_int64)
        found.beam_steps.restype = ctypes.c_int64
        found.panels.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    return found


class BeamSteps(ctypes.Structure):
    """Steps of a beam search that the C file takes by itself: `struct beam`, which says more of the fields.

    Attributes:
        taken: How many steps came before the one of `best` and `index`; None: none was taken.
    """

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("sentences", "width", "columns", "pieces", "end")),
        *((name, ctypes.c_void_p) for name in ("forbidden", "sums", "history", "divisors", "last", "worst")),
        *((name, ctypes.c_void_p) for name in ("best", "index", "code", "vectors", "log_probs", "tokens")),
        *((name, ctypes.c_void_p) for name in ("position", "slots", "vector", "mask", "moves")),
        *((name, ctypes.c_int64) for name in ("step", "room", "length", "steps", "dim", "group", "capacity")),
        ("states", ctypes.c_int64),
    ]

    def __init__(self, **fields: object) -> None:
        super().__init__()
        self.taken: int | None = None
        self._kept: list[object] = []
        self.tell(**fields)

    def tell(self, **fields: object) -> None:
        """Set fields; of arrays and tensors, which are kept, their addresses."""
        self._kept.append(fields)
        for name, value in fields.items():
            address = value.ctypes.data if isinstance(value, np.ndarray) else value
            setattr(self, name, value.data_ptr() if isinstance(value, Tensor) else address)


class Replay:
    """Carries a recorded step out again.

    Attributes:
        code: The whole step, as the C file reads it; None where torch does some of it.
        bytes: Memory of its tensors, without weights.
    """

    def __init__(
        self, compiled: ctypes.CDLL, parts: Sequence[Numbers | Callable[[], object]], kept: object, size: int
    ) -> None:
        self._compiled, self._kept = compiled, (parts, kept)
        self._calls = [
            partial(compiled.run, part.ctypes.data, len(part)) if isinstance(part, np.ndarray) else part
            for part in parts
        ]
        self.code = parts[0] if len(parts) == 1 and isinstance(parts[0], np.ndarray) else None
        self.bytes = size

    def __call__(self) -> None:
        """Carry it out once."""
        for call in self._calls:
            call()

    def search(self, beam: BeamSteps, vectors: Tensor | None) -> int:
        """Carry it out for a beam search, with the vectors of its positions, `[steps, d]`; `taken`."""
        assert self.code is not None
        beam.tell(code=self.code, length=len(self.code))
        if vectors is not None:
            beam.tell(vectors=vectors.contiguous(), dim=vectors.size(1))
        beam.taken = self._compiled.beam_steps(ctypes.byref(beam))
        return beam.taken


class CpuTape:
    """Captures the steps of a model in float32: a `deepwire.model.captured_steps.GraphCapture`."""

    room = 64
    patience = 40

    def __init__(self, model: nn.Module, compiled: ctypes.CDLL, most: int | None = None) -> None:
        self.compiled, self.most = compiled, most
        held = [each for module in model.modules() for each in (*vars(module).values(), *module.parameters())]
        # The tensors too, so that no other takes their addresses.
        self._weights = {
            _storage(each): each for each in held if isinstance(each, Tensor) and each.dtype == torch.float32
        }
        self._panels: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        # By their hash, which is their address; torch cannot compare them, so they are kept.
        self._packed: dict[int, tuple[object, Sequence[Any]]] = {}

    def capture(self, work: Callable[[], Result]) -> tuple[Result, Callable[[], None]]:
        """See `GraphCapture`."""
        with _Recorder(self) as recorder:
            result = work()
        return result, recorder.replay()

    def panels(self, weight: Tensor) -> Tensor | None:
        """A weight `[outputs, inputs]` as the C file reads it; None for other matrices."""
        place = () if weight.is_mkldnn else (weight.storage_offset(), *weight.stride())
        key = _storage(weight), *weight.shape, *place
        if key not in self._panels:
            if key[0] not in self._weights or weight.dim() != 2:
                return None
            plain = weight.to_dense() if weight.is_mkldnn else weight
            if not plain.is_contiguous():
                return None
            self._panels[key] = weight, self._laid_out(plain)
        return self._panels[key][1]

    def _laid_out(self, weight: Tensor) -> Tensor:
        made = weight.new_empty(-(-weight.size(0) // _PANELS) * _PANELS * weight.size(1))
        self.compiled.panels(weight.data_ptr(), *weight.shape, made.data_ptr())
        return made

    def packed(self, weight: Any, flag: str, lay_out: Callable[[Any], Sequence[Any]]) -> Sequence[Any] | None:
        """A weight that torch has packed, as the C file reads it; None where its flag says no."""
        if not ctypes.c_int64.in_dll(self.compiled, flag).value:
            return None
        if hash(weight) not in self._packed:
            self._packed[hash(weight)] = weight, lay_out(weight)
        return self._packed[hash(weight)][1]

    def halves(self, weight: Any) -> Sequence[Any]:
        """Panels and bias of a weight packed in float16."""
        plain, bias = torch.ops.quantized.linear_unpack_fp16(weight)
        return self._laid_out(plain.contiguous()).half(), bias


class ValueReadError(RuntimeError):
    """Work reads numbers of tensors, or their number decides a shape: it cannot be carried out again."""


_LOOKS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes down what is done in its block; every tensor that it meets stays where it is."""

    def __init__(self, tape: CpuTape) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = tape
        self._code: list[int] = []
        self._parts: list[Numbers | Callable[[], object]] = []
        self._kept: list[object] = []
        self._sizes: dict[int, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: what torch's compiler is to skip, it imports the compiler for, in some seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry an operation out, and take it down."""
        if _LOOKS.intersection(func.tags):
            raise ValueReadError(str(func))
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        record = _RECORDS.get(name)
        if record is None and _has_parts(func):
            with self:  # `func.decompose` imports torch's compiler for a product
                return func._op_dk(_OF_PARTS, *args, **kwargs)
        out = func(*args, **kwargs)
        outs = [
            each for each in (out if isinstance(out, tuple | list) else (out,)) if isinstance(each, Tensor)
        ]
        given = {_storage(each) for each in args if isinstance(each, Tensor)}
        changes = func._schema.is_mutable
        if not changes and ("empty" in name or all(_storage(each) in given for each in outs)):
            return out  # a view
        self.keep(args, kwargs, outs)
        self._sizes |= {_storage(each): each.nbytes for each in outs}
        rest = {name: value for name, value in kwargs.items() if name != "out"}
        made = None if record is None else record(self, outs[0], *args, **rest)
        if made is None:
            self._end_code()
            call = partial(func, *args, **kwargs)
            self._parts.append(call if changes else partial(_again, outs, call))
        return out if made is None else made

    def emit(self, operation: int, *numbers: int | Tensor | None) -> None:
        """Take an operation of the C file down; a tensor stands for its address, None for 0."""
        self.keep(numbers)
        values = [each.data_ptr() if isinstance(each, Tensor) else each or 0 for each in numbers]
        self._code += (operation, len(values) + 2, *values)

    def keep(self, *things: object) -> None:
        """Keep what is on the tape alive."""
        self._kept.append(things)

    def replay(self) -> Replay:
        """The call that carries all of it out again."""
        self._end_code()
        return Replay(self.tape.compiled, self._parts, self._kept, sum(self._sizes.values()))

    def _end_code(self) -> None:
        if self._code:
            self._parts.append(np.array(self._code, dtype=np.int64))
            self._code = []


@cache
def _has_parts(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _OF_PARTS)


def _storage(tensor: Tensor) -> int:
    return id(tensor) if tensor.is_mkldnn else tensor.untyped_storage()._cdata


def _several(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple | list) else (result,)


def _again(outs: Sequence[Tensor], call: Callable[[], Any]) -> None:
    for fixed, new in zip(outs, _several(call()), strict=True):
        fixed.copy_(new)


def _bits(number: float) -> int:
    return int(np.float64(number).view(np.int64))


def _rowwise(*tensors: Tensor | None) -> bool:
    """Whether all are float32 and contiguous."""
    return all(each is None or (each.dtype == torch.float32 and each.is_contiguous()) for each in tensors)


def _is_index(tensor: Tensor) -> bool:
    """Whether the C file can read indices in it."""
    return tensor.dtype == torch.int64 and tensor.is_contiguous()


# Each takes an operation down, given its result and its arguments. It returns the result, perhaps in another
# layout; None: the operation is left to torch.


def _map(
    function: str, to: _Recorder, out: Tensor, *inputs: Any, alpha: float = 1, value: float = 1, **other: Any
) -> Tensor | None:
    tensors = [out, *(each if isinstance(each, Tensor) else torch.tensor(float(each)) for each in inputs)]
    if (
        alpha != 1
        or value != 1
        or len(tensors) > 4
        or any(other.get(name) for name in ("approximate", "rounding_mode"))
    ):
        return None
    if any(each.dtype != torch.float32 for each in tensors):
        return None
    # torch.broadcast_shapes imports torch's compiler.
    shape = np.broadcast_shapes(*(each.shape for each in tensors))
    axes: list[tuple[int, ...]] = []
    for size, *own in zip(shape, *(each.expand(shape).stride() for each in tensors), strict=True):
        if axes and all(before == size * now for before, now in zip(axes[-1][1:], own, strict=True)):
            axes[-1] = (axes[-1][0] * size, *own)
        elif size != 1:
            axes.append((size, *own))
    if len(axes) > _MOST_AXES or 0 in shape:
        return None
    axes = [(*axis, *[0] * (5 - len(axis))) for axis in axes or [(1,)]]
    flat = (number for numbers in zip(*axes, strict=True) for number in numbers)
    pointers = (tensors + tensors[-1:] * 3)[:4]
    to.emit(_ELEMENTWISE, _FUNCTIONS.index(function), len(axes), *pointers, *flat)
    return out


def _copy(to: _Recorder, out: Tensor, _x: Tensor, source: Any, *_: Any) -> Tensor | None:
    return _map("clone", to, out, source)


def _glu(to: _Recorder, out: Tensor, x: Tensor, dim: int = -1) -> Tensor | None:
    return _map("glu", to, out, *x.chunk(2, dim))


def _reduced(
    function: str,
    to: _Recorder,
    out: Tensor,
    x: Tensor,
    dim: Any = None,
    *_: Any,
    mean: bool = False,
    **__: Any,
) -> Tensor | None:
    axes = {axis % x.dim() for axis in (dim if dim else range(x.dim()))}
    kept = out.view([1 if axis in axes else size for axis, size in enumerate(x.shape)])
    begin = -torch.inf if function == "amax" else 0.0
    if x.dtype != torch.float32 or _map("clone", to, out, begin) is None:
        return None
    _map(function, to, kept.expand(x.shape), x)
    return _map("mul", to, out, out, out.numel() / x.numel()) if mean else out


def _clamp(to: _Recorder, out: Tensor, x: Tensor, least: Any = None, most: Any = None) -> Tensor | None:
    return None if least is None or most is not None else _map("maximum", to, out, x, least)


def _cat(to: _Recorder, out: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> Tensor | None:
    parts = list(zip(tensors, torch.split(out, [each.size(dim) for each in tensors], dim), strict=True))
    whole = all(each.dtype == out.dtype == torch.float32 and each.numel() for each in tensors)
    return out if whole and all(_map("clone", to, part, each) is not None for each, part in parts) else None


def _stack(to: _Recorder, out: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> Tensor | None:
    return _cat(to, out, [each.unsqueeze(dim) for each in tensors], dim)


def _mm(to: _Recorder, out: Tensor, a: Tensor, b: Tensor) -> Tensor | None:
    return _addmm(to, out, None, a, b)


def _addmm(
    to: _Recorder, out: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1
) -> Tensor | None:
    """x W^T + b, or (W x^T)^T + b, the rows of which lie together afterwards."""
    if (panels := to.tape.panels(b.t())) is not None:
        rows, made, one = a, out, (1, out.size(1))
    elif (panels := to.tape.panels(a)) is not None:
        rows, made, one = b.t(), out.t().contiguous(), (out.size(0), 1)
    else:
        return None
    if bias is not None and one not in ((1, *bias.shape), bias.shape):
        return None  # a sum of its own for each row
    if beta != 1 or alpha != 1 or rows.stride(1) != 1 or not _rowwise(bias, made):
        return None
    to.emit(_LINEAR, rows, panels, bias, made, *rows.shape, made.size(1), rows.stride(0), made.stride(0), 0)
    return made if rows is a else made.t()


def _onednn(
    to: _Recorder, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *_: Any
) -> Tensor | None:
    if not _rowwise(x, out) or (panels := to.tape.panels(weight)) is None:
        return None
    return _linear(to, out, x, panels, bias)


def _linear(
    to: _Recorder, out: Tensor, x: Tensor, panels: Tensor, bias: Tensor | None, *, halves: bool = False
) -> Tensor:
    inputs, outputs = x.size(-1), out.size(-1)
    to.emit(_LINEAR, x, panels, bias, out, x.numel() // inputs, inputs, outputs, inputs, outputs, halves)
    return out


def _linear_of_halves(to: _Recorder, out: Tensor, x: Tensor, packed: Any) -> Tensor | None:
    if not _rowwise(x, out) or (parts := to.tape.packed(packed, "has_halves", to.tape.halves)) is None:
        return None
    return _linear(to, out, x, parts[0], parts[1], halves=True)


def _linear_of_bytes(
    to: _Recorder, out: Tensor, x: Tensor, level: float, zero: int, packed: Any
) -> Tensor | None:
    lay_out = partial(_bytes_of, level=level, zero=zero)
    if not _rowwise(x, out) or (parts := to.tape.packed(packed, "has_bytes", lay_out)) is None:
        return None
    rows, inputs = x.numel() // x.size(-1), x.size(-1)
    room = torch.zeros(rows, inputs + -inputs % 4, dtype=torch.uint8)
    # torch divides by the float32 of the size of a level, too.
    to.emit(_BYTES, x, *parts, out, room, rows, inputs, out.size(-1), _bits(float(1 / np.float32(level))))
    return out


def _attention(
    to: _Recorder,
    out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    *other: Any,
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: ARG001 - seen by the heads
    **named: Any,
) -> Tensor | None:
    mask = None if attn_mask is None else attn_mask.expand(*q.shape[:3], k.size(2))
    tensors = [each for each in (q, k, v, out, mask) if each is not None]
    if (
        any(other)
        or any(named.values())
        or any(each.dtype != torch.float32 or each.stride(3) != 1 for each in tensors)
    ):
        return None
    room = torch.empty(2 * k.size(2), dtype=torch.int64)
    strides = (s for each in (q, k, v, mask, out) for s in ((0, 0, 0) if each is None else each.stride()[:3]))
    sizes = (*q.shape[:3], k.size(2), q.size(3), q.size(1) // k.size(1))
    to.emit(_ATTENTION, q, k, v, mask, out, room, *sizes, *strides, _bits(scale or q.size(3) ** -0.5))
    return out


def _bytes_of(packed: Any, level: float, zero: int) -> Sequence[Tensor]:
    """Panels, factors and zeros of a weight packed in bytes; levels and zero are those of its inputs."""
    weight, _ = torch.ops.quantized.linear_unpack(packed)
    outputs, inputs = weight.shape
    plain = nn.functional.pad(weight.int_repr(), (0, -inputs % 4, 0, -outputs % _EIGHTS))
    panels = plain.view(-1, 8, plain.size(1) // 4, 4).transpose(1, 2).contiguous()
    factors = (weight.q_per_channel_scales() * level).float()
    return panels, factors, plain.sum(1, dtype=torch.int32) * zero


def _softmax(logarithm: bool, to: _Recorder, out: Tensor, x: Tensor, dim: int, *_: Any) -> Tensor | None:
    if dim % x.dim() != x.dim() - 1 or not _rowwise(x, out):
        return None
    to.emit(_SOFTMAX, x, out, x.numel() // x.size(-1), x.size(-1), logarithm)
    return out


def _layer_norm(
    to: _Recorder,
    out: Tensor,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float | None = 1e-5,
    *_: Any,
    mean: bool = True,
) -> Tensor | None:
    if len(shape) != 1 or eps is None or not _rowwise(x, out, weight, bias):
        return None
    to.emit(_NORM, x, weight, bias, out, x.numel() // shape[0], shape[0], _bits(eps), mean)
    return out


def _rms_norm(
    to: _Recorder, out: Tensor, x: Tensor, shape: Any, weight: Any = None, eps: float | None = None
) -> Tensor | None:
    return _layer_norm(to, out, x, shape, weight, None, eps, mean=False)


def _embedding(to: _Recorder, out: Tensor, table: Tensor, index: Tensor, *_: Any) -> Tensor | None:
    if not _rowwise(out, table[0]) or not _is_index(index):
        return None
    to.emit(_ROWS, table, index, out, index.numel(), table[0].numel(), table.stride(0))
    return out


def _index_select(to: _Recorder, out: Tensor, x: Tensor, dim: int, index: Tensor) -> Tensor | None:
    return _embedding(to, out, x, index) if dim == 0 else None


def _index_put(
    to: _Recorder, out: Tensor, x: Tensor, indices: Any, values: Tensor, accumulate: bool = False
) -> Tensor | None:
    """x[..., index] = values, or x[..., index, :] = values; an int64 is moved like two numbers."""
    *free, index = indices
    axis, wide = len(free), x.element_size() // 4
    if any(each is not None for each in free) or index.dim() != 1 or not _is_index(index):
        return None
    if accumulate or x.dtype not in (torch.float32, torch.int64):
        return None
    values = values.expand(*x.shape[:axis], index.numel(), *x.shape[axis + 1 :])
    if x.dim() > axis + 2 - (wide > 1) or x.dtype != values.dtype:
        return None
    outer = [each for each in zip(x.shape, x.stride(), values.stride()[:axis], strict=False) if each[0] > 1]
    if len(outer) > 2:
        return None
    sizes, *strides = zip(*[(1, 0, 0)] * (2 - len(outer)), *outer, strict=True)
    numbers = [index.numel(), x.size(-1) if x.dim() > axis + 1 else wide]
    for each, ahead in zip((x, values), strides, strict=True):
        inner = each.stride(axis), each.stride(-1) if each.dim() > axis + 1 else 1
        numbers += [wide * stride for stride in (*ahead, inner[0])] + [inner[1]]
    to.emit(_PUT, x, index, values, *sizes, *numbers)
    return out


_RECORDS: Mapping[str, _Record] = {
    **{name: partial(_map, name) for name in _FUNCTIONS},
    "_to_copy": partial(_map, "clone"),
    "copy": _copy,
    "fill": _copy,
    "glu": _glu,
    "sum": partial(_reduced, "sum"),
    "mean": partial(_reduced, "sum", mean=True),
    "amax": partial(_reduced, "amax"),
    "clamp": _clamp,
    "cat": _cat,
    "stack": _stack,
    "mm": _mm,
    "addmm": _addmm,
    "mkldnn::_linear_pointwise": _onednn,
    "quantized::linear_dynamic_fp16": _linear_of_halves,
    "quantized::linear_with_input_q_dq_qweight_dq_output_fp32": _linear_of_bytes,
    "scaled_dot_product_attention": _attention,
    "_softmax": partial(_softmax, False),
    "log_softmax": partial(_softmax, True),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "embedding": _embedding,
    "index_select": _index_select,
    "index_put": _index_put,
}
