"""Sums of tensors over forked processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._C._distributed_c10d import FileStore

from deepwire.distributed.forked_group import SharedMemoryReduce

SHAPES = st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), min_size=1, max_size=6)


def drawn(round_number: int, rank: int, shapes: Iterable[tuple[int, ...]]) -> list[Tensor]:
    """Tensors of one process; every other one in float64."""
    generator = torch.Generator().manual_seed(100 * round_number + rank)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64 if index % 2 else torch.float32)
        for index, shape in enumerate(shapes)
    ]


def sum_in_turns(count: int, rounds: list[list[tuple[int, ...]]], folder: Path) -> list[list[list[Tensor]]]:
    """What each process has after each round; the children leave theirs in files."""
    sums, children, rank = SharedMemoryReduce(count), [], 0
    for other in range(1, count):
        child = os.fork()
        if not child:
            rank = other
            torch.set_num_threads(1)  # those that an earlier test started are not here
            break
        children.append(child)
    code = 1
    try:
        store = FileStore(str(folder / "store"), count)
        store.set_timeout(timedelta(seconds=60))
        meetings = iter(range(1000))

        def meet() -> None:
            name = f"meeting {next(meetings)}"
            if store.add(name, 1) == count:
                store.set(f"{name} is over", "")
            store.wait([f"{name} is over"])

        found = []
        for number, shapes in enumerate(rounds):
            tensors = drawn(number, rank, shapes)
            sums.all_reduce_tensors(tensors, rank, meet)
            found.append(tensors)
        torch.save(found, folder / str(rank))
        code = 0
    finally:
        if rank:
            os._exit(code)
    sums.close()
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
    return [torch.load(folder / str(rank)) for rank in range(count)]


@pytest.mark.parametrize("count", [2, 3])
@settings(max_examples=5)
@given(rounds=st.lists(SHAPES, min_size=1, max_size=4))
def test_all_have_the_same_sums(
    count: int, rounds: list[list[tuple[int, ...]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = sum_in_turns(count, rounds, tmp_path_factory.mktemp("sums"))
    for number, shapes in enumerate(rounds):
        expected = drawn(number, 0, shapes)
        for rank in range(1, count):
            expected = [one + other for one, other in zip(expected, drawn(number, rank, shapes), strict=True)]
        for process in found:
            for tensor, value in zip(process[number], expected, strict=True):
                assert tensor.dtype == value.dtype
                assert torch.equal(tensor, value)


def test_closing_gives_the_memory_back() -> None:
    def open_files() -> set[str]:
        return {file.name for file in Path("/proc/self/fd").iterdir()}

    before = open_files()
    sums = SharedMemoryReduce(2)
    sums.all_reduce_tensors([torch.ones(1000)], 0, lambda: None)
    assert "deepwire-sums" in Path("/proc/self/maps").read_text()
    sums.close()
    assert open_files() == before
    assert "deepwire-sums" not in Path("/proc/self/maps").read_text()
