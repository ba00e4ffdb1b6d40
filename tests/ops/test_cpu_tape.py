"""What a tape does again is what torch does, on other numbers at the same addresses."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
import torch
from torch.nn import functional

from deepwire.ops import cpu_tape
from deepwire.ops.compiled_c import compiled_library
from deepwire.ops.cpu_tape import CpuTape, Program, Replay, ValueReadError, library
from deepwire.ops.packed_linear import Float16Linear, Int8Linear, has_kernels

COMPILED = cast(ctypes.CDLL, library())
pytestmark = pytest.mark.skipif(library() is None, reason="needs a C compiler")


def recorded(tape, work):
    """The result of work without sizes, and its replay."""
    replay = Program(tape, lambda _sizes: lambda: [work()], 0).at(())
    assert replay is not None
    return replay.tensors[0], replay


def put(x, values):
    x[:, INDEX] = values
    return x


WEIGHT, BIAS, INDEX = torch.randn(37, 12), torch.randn(37), torch.tensor([3, 0, 2])
ROWS = torch.tensor([1, 0, 1])
MASK = torch.zeros(2, 1, 3, 4).masked_fill_(torch.rand(2, 1, 3, 4) > 0.5, -1e38)
MASK[0, 0, 0] = -1e38  # sees nothing
KNOWN = {
    "broadcast": lambda x: (x * x[:, :1] - 2.5).relu() / (1 + x.square()),
    "transposed": lambda x: x.transpose(0, 2) + x.transpose(0, 2).contiguous().sigmoid(),
    "gates": lambda x: functional.silu(x) + functional.gelu(x) * x.tanh() - functional.glu(x.exp()).sum(),
    "sums": lambda x: x.sum((0, 2)) + x.mean(-1, keepdim=True),
    "bytes": lambda x: x.abs().amax(-1, keepdim=True).clamp_(min=1.5) + torch.maximum(x, -x),
    "norms": lambda x: functional.layer_norm(x, (12,)) + functional.rms_norm(x, (12,), BIAS[:12], 1e-6),
    "linear": lambda x: functional.linear(x, WEIGHT, BIAS),
    "columns": lambda x: torch.addmm(BIAS[:, None], WEIGHT, x.view(-1, 12).t()).t().contiguous(),
    "parts of a weight": lambda x: x @ WEIGHT[:12].t() + x @ WEIGHT[12:24].t(),
    "softmax": lambda x: x.softmax(-1) + torch.log_softmax(x * 30, -1),
    "attention": lambda x: functional.scaled_dot_product_attention(
        *(x.view(2, 4, 4, 3)[:, :, 1:], x.view(2, 4, 4, 3), 2 * x.view(2, 4, 4, 3)), MASK
    ),
    "rows": lambda x: torch.cat([x[:, 1].index_select(0, ROWS), functional.embedding(INDEX, WEIGHT)], 1),
    "put": lambda x: put(x.clone(), x[:, 1:]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_operations_are_done_as_by_torch(name, monkeypatch):
    # Nothing is left to torch.
    monkeypatch.setattr(cpu_tape, "_again", None)
    holder = torch.nn.Module()
    holder.weight, x = WEIGHT, torch.randn(2, 4, 12)
    with torch.inference_mode():
        found, replay = recorded(CpuTape(holder, COMPILED), lambda: KNOWN[name](x))
        x.copy_(torch.randn(2, 4, 12))
        found.zero_()
        replay()
        torch.testing.assert_close(found, KNOWN[name](x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("packed", "flag"), [(Float16Linear, "has_halves"), (Int8Linear, "has_bytes")])
@pytest.mark.skipif(not has_kernels("int8"), reason="torch has no such kernels here")
def test_packed_weights_are_read_in_c(packed, flag):
    x, weight = torch.randn(7, 13), torch.randn(37, 13)
    part = packed(weight, BIAS)
    with torch.inference_mode():
        tape = CpuTape(torch.nn.Module(), COMPILED)
        for _ in range(2):
            found, replay = recorded(tape, lambda: part(x))
        known = ctypes.c_int64.in_dll(COMPILED, flag).value
        assert (cast(Replay, replay).code is not None) == known == len(tape._packed)  # a weight is read once
        x.copy_(torch.randn(7, 13))
        x[0] = 0
        x[1, 2] = torch.nan
        found.zero_()
        replay()
        torch.testing.assert_close(found, part(x), rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    "work",
    [
        lambda x: functional.embedding(INDEX.int(), WEIGHT) + x[0, 0],
        lambda x: x[:, 0].index_select(0, ROWS.int()),
        lambda x: put(x > 0, x[:, 1:] > 1),
        lambda x: put(x.half(), x[:, 1:].half()),
        lambda x: x.clone().index_put_((INDEX,), x[0, 0], accumulate=True),
        lambda x: x.clone().index_put_((ROWS[::2].int(),), x[:1] + 1),
        lambda x: x.clone().index_put_((INDEX[::2],), x[:2] + 1),
    ],
)
def test_numbers_and_indices_of_other_types_are_left_to_torch(work):
    x = torch.randn(4, 4, 12)
    with torch.inference_mode():
        found, replay = recorded(CpuTape(torch.nn.Module(), COMPILED), lambda: work(x))
        x.copy_(torch.randn(4, 4, 12))
        replay()
        assert torch.equal(found, work(x))


def test_what_the_tape_does_not_know_is_left_to_torch():
    holder = torch.nn.Module()
    holder.weight, x = WEIGHT, torch.randn(4, 12)
    with torch.inference_mode():
        each = torch.randn(4, 37)
        found, replay = recorded(CpuTape(holder, COMPILED), lambda: torch.addmm(each, x, WEIGHT.t()))
        found.zero_()
        replay()
        torch.testing.assert_close(found, torch.addmm(each, x, WEIGHT.t()), rtol=1e-5, atol=1e-5)
    x = torch.randn(3, 5)
    with torch.inference_mode():
        found, replay = recorded(
            CpuTape(torch.nn.Module(), COMPILED), lambda: (x + 1).cumsum(1).argmax(1) * 2
        )
        x.copy_(x.flip(1) * 3)
        replay()
    assert torch.equal(found, (x + 1).cumsum(1).argmax(1) * 2)


def test_what_lies_where_a_weight_was_is_no_weight():
    holder = torch.nn.Module()
    holder.table = torch.randn(64, 12)
    tape, x = CpuTape(holder, COMPILED), torch.randn(4, 12)
    del holder.table
    with torch.inference_mode():
        each = torch.randn(64, 12)  # as a rule in the same place
        found, replay = recorded(tape, lambda: x @ each.t())
        each.copy_(torch.randn(64, 12))
        replay()
        torch.testing.assert_close(found, x @ each.t(), rtol=1e-5, atol=1e-5)


def test_work_that_looks_at_values_is_not_recorded():
    x = torch.randn(3, 5)
    for work in (lambda: x * x.sum().item(), lambda: x.masked_select(x > 0)):
        with torch.inference_mode(), pytest.raises(ValueReadError):
            recorded(CpuTape(torch.nn.Module(), COMPILED), work)


def test_what_is_recorded_holds_at_all_sizes():
    """With a part in C and one of torch, in which numbers depend on sizes."""
    holder = torch.nn.Module()
    holder.weight = WEIGHT

    def step(x):
        y = functional.linear(x, WEIGHT, BIAS).transpose(0, 1).relu()
        return y.cumsum(1) + torch.arange(x.size(1))[:, None, None] * x.size(0)

    def make(sizes):
        x = torch.zeros(*sizes, 12)
        return lambda: [x, step(x)]

    with torch.inference_mode():
        program = Program(CpuTape(holder, COMPILED), make, 2)
        for sizes in ((1, 1), (7, 1), (1, 9), (11, 30), (2, 2)):
            replay = program.at(sizes)
            assert replay is not None
            x, found = replay.tensors
            x.copy_(torch.randn(*sizes, 12))
            replay()
            torch.testing.assert_close(found, step(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "rows",
    [
        lambda table, n: table[:n] * 2,
        lambda table, n: table[40 - n :] * 2,
        lambda table, n: table[:n].cumsum(0),
    ],
)
def test_no_table_is_read_outside_of_it(rows):
    table = torch.randn(40, 4)

    def make(sizes):
        x = torch.zeros(sizes)
        return lambda: [x, x.unsqueeze(2) * rows(table, sizes[1])]

    with torch.inference_mode():
        program = Program(CpuTape(torch.nn.Module(), COMPILED), make, 2)
        assert program.at((1, 40)) is not None
        assert program.at((1, 41)) is None


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.relu() if len(x) < 8 else x.exp(),
        lambda x: x.sum(0) if x.size(1) < 4 else x.sum(0)[:3],
        lambda x: x[:, :16] * 2,
        lambda x: x + torch.tensor([1.0]),
        lambda x: x.mean(1),
        lambda x: x / x.size(1),
        lambda x: functional.layer_norm(x[:, :2], (2,), eps=float(x.size(1))),
        lambda x: torch.fft.fft(x).conj().imag + 1,
    ],
)
def test_what_is_not_the_same_at_all_sizes_is_not_recorded(step):
    def make(sizes):
        x = torch.zeros(sizes)
        return lambda: [x, step(x)]

    with torch.inference_mode(), pytest.raises(ValueReadError):
        Program(CpuTape(torch.nn.Module(), COMPILED), make, 2)


SOURCE = Path(cpu_tape.__file__).with_suffix(".c")


@pytest.mark.parametrize("compiler", ["false", "'"])
def test_without_a_compiler_there_is_no_tape(monkeypatch, tmp_path, compiler):
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiled_library.__wrapped__(SOURCE) is None


def test_without_a_home_there_is_no_tape(monkeypatch):
    def expanduser(_path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", expanduser)
    assert compiled_library.__wrapped__(SOURCE) is None


def test_a_library_of_which_a_part_is_missing_is_made_again(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", f"env {os.environ.get('CC', 'cc')}")  # with arguments
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder, source = tmp_path / "deepwire", tmp_path / "one.c"
    source.write_text("int one(void) { return 1; }")
    assert compiled_library.__wrapped__(source).one() == 1
    (made,) = folder.iterdir()
    whole = made.read_bytes()
    made.unlink()
    made.write_bytes(whole[:5000])
    assert compiled_library.__wrapped__(source).one() == 1
    assert made.stat().st_size == len(whole)


def test_recording_imports_no_compiler_of_torch():
    """It would take seconds, in front of the second sentence that anybody translates."""
    program = """if True:
        import sys
        import torch
        from deepwire.ops.cpu_tape import CpuTape, Program, library
        layer, x = torch.nn.Linear(8, 8), torch.randn(2, 1, 8)
        with torch.inference_mode():
            work = lambda: [layer(x).sigmoid() * 2 + x @ layer.weight.t()]
            Program(CpuTape(layer, library()), lambda sizes: work, 1)
        print(sorted({"sympy", "torch._dynamo"} & sys.modules.keys()))
    """
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout == "[]\n"
