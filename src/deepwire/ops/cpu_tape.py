"""Steps of a decoder recorded on a CPU, and carried out again by one call of compiled C.

A step of a small model is some hundred operations of about a microsecond, and torch takes several to begin
one. The tape is the list of what a step did in float32, with the addresses of its tensors; `cpu_tape.c` goes
through it. What it does not know is left to torch, in its place. Sums have another order than torch's, so
numbers differ by rounding.

Batches come in many sizes. So a step is recorded at a few of them, and what its sizes, strides and places in
memory are at any other follows from those (`Program`).

Without a C compiler there is no tape (`compiled_c`).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from deepwire.ops.compiled_c import compiled_library

Numbers = npt.NDArray[Any]
Sizes = tuple[int, ...]
Work = Callable[[], Sequence[Tensor]]
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
_ALIGNED = 64
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
    """Carries recorded work out again, at some sizes.

    Attributes:
        tensors: What the work reads and gives.
        code: All of it, as the C file reads it; None where torch does some of it.
    """

    def __init__(
        self,
        compiled: ctypes.CDLL,
        parts: Sequence[Numbers | Callable[[], object]],
        tensors: Sequence[Tensor],
        kept: object,
    ) -> None:
        self._compiled, self.tensors, self._kept = compiled, tensors, (parts, kept)
        self._calls = [
            partial(compiled.run, part.ctypes.data, len(part)) if isinstance(part, np.ndarray) else part
            for part in parts
        ]
        self.code = parts[0] if len(parts) == 1 and isinstance(parts[0], np.ndarray) else None

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
    """Records work of a model in float32.

    Attributes:
        most: Sentences of a batch whose steps are recorded; those of larger ones run as they are.
    """

    def __init__(self, model: nn.Module, compiled: ctypes.CDLL, most: int = 0) -> None:
        self.compiled, self.most = compiled, most
        held = [each for module in model.modules() for each in (*vars(module).values(), *module.parameters())]
        # The tensors too, so that no other takes their addresses.
        self._weights = {
            _storage(each): each for each in held if isinstance(each, Tensor) and each.dtype == torch.float32
        }
        self._panels: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        # By their hash, which is their address; torch cannot compare them, so they are kept.
        self._packed: dict[int, tuple[object, Sequence[Any]]] = {}
        self._numbers: dict[int, Tensor] = {}

    def number(self, value: float) -> Tensor:
        """A tensor that holds it, the same in all recordings."""
        return self._numbers.setdefault(_bits(value), torch.tensor(value))

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
    """Work reads numbers of tensors, or is other work at other sizes: it cannot be carried out again."""


_LOOKS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class _Shaped(NamedTuple):
    """A tensor of a recording: a storage, and offset, sizes and strides among the numbers from `first` on."""

    first: int
    storage: int
    dim: int
    like: Tensor


class _Number(NamedTuple):
    """An argument that may depend on sizes: the number at `first`."""

    first: int


class _Call(NamedTuple):
    """An operation left to torch; if it changes nothing given, its results are copied to `outs`."""

    func: Any
    leaves: list[Any]
    spec: TreeSpec
    outs: list[Any]


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes down what is done in its block; every tensor that it meets stays where it is.

    Attributes:
        numbers: All that may depend on sizes: code, shapes, and bytes of storages.
        bases: The storage that each number is an address in, or -1.
        form: The rest, which recordings at all sizes have in common.
        storages: A tensor of each, in the order in which they are met.
        spans: Of each tensor its storage, its first byte, and the first behind it.
        strange: Storages that are read, and that nothing recorded has made.
        wanted, order: What is wanted, each once, and where it stands there.
        parts: What is to be done: how many numbers of code, or a call of torch.
    """

    def __init__(self, tape: CpuTape) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = tape
        self.numbers: list[int] = []
        self.bases: list[int] = []
        self.form: list[Hashable] = []
        self.storages: list[Tensor] = []
        self.spans: list[tuple[int, int, int]] = []
        self.strange: dict[int, Tensor] = {}
        # The tensors too, so that no other takes their addresses.
        self._made: dict[int, Tensor] = {}
        self._places: dict[int, int] = {}
        self.parts: list[slice | _Call] = []
        self.wanted: list[Any] = []
        self.order: list[int] = []

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
        read = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        self.strange |= {_storage(each): each for each in read if _storage(each) not in self._made}
        out = func(*args, **kwargs)
        outs = [
            each for each in (out if isinstance(out, tuple | list) else (out,)) if isinstance(each, Tensor)
        ]
        given = {_storage(each) for each in read}
        self._made |= {_storage(each): each for each in outs if _storage(each) not in given}
        changes = func._schema.is_mutable
        if not changes and ("empty" in name or all(_storage(each) in given for each in outs)):
            return out  # a view
        rest = {name: value for name, value in kwargs.items() if name != "out"}
        made = None if record is None else record(self, outs[0], *args, **rest)
        if made is None:
            leaves, spec = tree_flatten((args, kwargs))
            fixed = [] if changes else [self._leaf(each) for each in outs]
            self.parts.append(_Call(func, [self._leaf(each) for each in leaves], spec, fixed))
        return out if made is None else made

    def number(self, value: float) -> Tensor:
        """A tensor that holds a number, which is the same at all sizes."""
        self.form.append(value)
        return self.tape.number(value)

    def emit(self, operation: int, *numbers: Any) -> None:
        """Take an operation of the C file down: the addresses of tensors, the bits of floats, 0 for None."""
        first = len(self.numbers)
        self._note(operation, len(numbers) + 2)
        for each in numbers:
            if isinstance(each, Tensor):
                self._note(int(each.storage_offset()) * each.element_size(), base=self._met(each))
            elif isinstance(each, float):
                self._note(_bits(each))
                self.form.append(each)
            else:
                self._note(int(each or 0))
        last = self.parts[-1] if self.parts else None
        if isinstance(last, slice):
            first, self.parts = last.start, self.parts[:-1]
        self.parts.append(slice(first, len(self.numbers)))
        self.form.append((operation, len(numbers)))

    def end(self, wanted: Sequence[Tensor]) -> None:
        """Note what is wanted of the work."""
        places: dict[int, int] = {}
        self.order = [places.setdefault(id(each), len(places)) for each in wanted]
        self.wanted = [self._leaf(wanted[self.order.index(place)]) for place in range(len(places))]
        for each in wanted:
            self.strange.pop(_storage(each), None)
        for _, *span in self.spans:
            self._note(*span)
        self._note(*(each.untyped_storage().nbytes() for each in self.storages))

    def _note(self, *numbers: int, base: int = -1) -> None:
        self.numbers += numbers
        self.bases += [base] * len(numbers)

    def _met(self, tensor: Tensor) -> int:
        """The place of its storage."""
        if tensor.is_conj() or tensor.is_neg():
            raise ValueReadError  # no numbers lie there
        place = self._places.setdefault(_storage(tensor), len(self.storages))
        if place == len(self.storages):
            self.storages.append(tensor)
        first, size = int(tensor.storage_offset()), tensor.element_size()
        pairs = zip(tensor.shape, tensor.stride(), strict=True)
        reach = sum((n - 1) * step for n, step in pairs) if tensor.numel() else -1
        self.spans.append((place, first * size, (first + reach + 1) * size))
        return place

    def _leaf(self, value: Any) -> Any:
        first = len(self.numbers)
        if isinstance(value, Tensor) and not value.is_mkldnn:
            storage = self._met(value)
            self._note(int(value.storage_offset()), *value.shape, *value.stride())
            self.form.append((storage, value.dim(), value.dtype))
            return _Shaped(first, storage, value.dim(), value)
        if type(value) is int:
            self._note(value)
            return _Number(first)
        self.form.append(value if isinstance(value, float) else hash(value))
        return value


class Program:
    """Recorded work, for sizes `n, *others`: its numbers are linear in n, the others, and n times each other.

    That is checked at one size far away. Work without sizes has one record, whose tensors are its own.

    Raises:
        ValueReadError: It is other work there, or reads what it neither makes nor gives, and what is not the
            same everywhere.
    """

    def __init__(self, tape: CpuTape, make: Callable[[Sizes], Work], axes: int) -> None:
        self._compiled, recordings, terms = tape.compiled, [], []
        # As many rows as products have where they are not few (`PlainLinear`), and what fits in small tables.
        one, least = np.eye(axes, dtype=np.int64), np.array([7, 2, 2], dtype=np.int64)[:axes]
        steps = [0 * least, *one[:1], *(each for other in one[1:] for each in (other, one[0] + other))]
        far = [np.array([9, 18, 31])[:axes]] if axes else []
        for step in [*steps, *far]:
            sizes = tuple((least + step).tolist())
            work = make(sizes)
            with _Recorder(tape) as recorder:
                wanted = work()
            recorder.end(wanted)
            recordings.append(recorder)
            terms.append(_terms(sizes))
        first = recordings[0]
        strange, form = first.strange.keys(), (first.form, first.bases)
        if any(each.strange.keys() != strange or (each.form, each.bases) != form for each in recordings):
            raise ValueReadError
        table = np.array([each.numbers for each in recordings])
        fitted = np.linalg.solve(
            np.array(terms[: len(steps)], dtype=np.float64), table[: len(steps)] - table[0]
        )
        self._coefficients = np.rint(fitted).astype(np.int64)
        self._coefficients[0] += table[0]
        if (np.array(terms) @ self._coefficients != table).any():
            raise ValueReadError
        # What all recordings have, such as weights, is no part of one.
        storages = zip(*(map(_storage, each.storages) for each in recordings), strict=True)
        shared = [len(set(each)) == 1 for each in storages]
        whole = [each.untyped_storage() for each in first.storages]
        self._own = ~np.array([*shared, True])
        self._addresses = np.array([*(each.data_ptr() for each in whole), 0]) * ~self._own
        most = [each.nbytes() if alike else sys.maxsize for each, alike in zip(whole, shared, strict=True)]
        self._limits = np.array([most[storage] for storage, *_ in first.spans])
        self._bases = np.array(first.bases)
        self._parts, self._wanted, self._order = first.parts, first.wanted, first.order
        self._kept = first.storages

    def at(self, sizes: Sizes) -> Replay | None:
        """The work at these sizes, with tensors of its own; None where shared ones are too small for them."""
        numbers = _terms(sizes) @ self._coefficients
        count = len(self._own) - 1
        begins, ends = numbers[-count - 2 * len(self._limits) : -count].reshape(-1, 2).T
        if (begins < 0).any() or (ends > self._limits).any():
            return None
        extents = np.zeros(count + 1, dtype=np.int64)
        np.multiply(-(-numbers[-count:] // _ALIGNED), _ALIGNED, out=extents[:-1], where=self._own[:-1])
        ends = extents.cumsum()
        room = torch.empty(int(ends[-1]), dtype=torch.uint8)
        places = (ends - extents) * self._own
        code = numbers + (self._addresses + (places + room.data_ptr()) * self._own)[self._bases]
        plain, starts, views = numbers.tolist(), places.tolist(), dict[torch.dtype, Tensor]()

        def value(leaf: Any) -> Any:
            if isinstance(leaf, _Number):
                return plain[leaf.first]
            if not isinstance(leaf, _Shaped):
                return leaf
            first, storage, dim, like = leaf
            whole, offset, middle = like, plain[first], first + 1 + dim
            if self._own[storage]:
                if like.dtype not in views:
                    views[like.dtype] = room.view(like.dtype)
                whole = views[like.dtype]
                offset += starts[storage] // like.element_size()
            return whole.as_strided(plain[first + 1 : middle], plain[middle : middle + dim], offset)

        parts: list[Numbers | Callable[[], object]] = []
        for part in self._parts:
            if isinstance(part, slice):
                parts.append(code[part])
            else:
                args, kwargs = tree_unflatten([value(each) for each in part.leaves], part.spec)
                call = partial(part.func, *args, **kwargs)
                parts.append(
                    partial(_again, [value(each) for each in part.outs], call) if part.outs else call
                )
        made = [value(leaf) for leaf in self._wanted]
        return Replay(self._compiled, parts, [made[place] for place in self._order], (self, room))


def _terms(sizes: Sizes) -> Numbers:
    n, others = sizes[:1], sizes[1:]
    return np.array([1, *n, *(each for other in others for each in (other, n[0] * other))])


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
    given = (out, *inputs)
    if any(isinstance(each, Tensor) and each.dtype != torch.float32 for each in given) or len(given) > 4:
        return None
    if alpha != 1 or value != 1 or any(other.get(name) for name in ("approximate", "rounding_mode")):
        return None
    tensors = [each if isinstance(each, Tensor) else to.number(float(each)) for each in given]
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
    to.emit(_BYTES, x, *parts, out, room, rows, inputs, out.size(-1), float(1 / np.float32(level)))
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
    to.emit(_ATTENTION, q, k, v, mask, out, room, *sizes, *strides, scale or q.size(3) ** -0.5)
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
    to.emit(_NORM, x, weight, bias, out, x.numel() // shape[0], shape[0], float(eps), mean)
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
