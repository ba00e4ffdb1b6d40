"""Choosing a device on machines with any number of GPUs; memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import UsageError
from deepwire.ops.allocator import give_memory_back, keep_memory
from deepwire.training.device import choose_device, memory_in_use


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Pretends that so many GPUs are there."""

    def pretend(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)

    return pretend


@pytest.mark.parametrize(
    ("name", "count", "processes", "chosen"),
    [
        ("auto", 0, ProcessGroup(), "cpu"),
        ("auto", 1, ProcessGroup(), "cuda:0"),
        ("auto", 8, ProcessGroup(), "cuda:0"),
        ("cuda:5", 8, ProcessGroup(), "cuda:5"),
        ("cpu", 8, ProcessGroup(), "cpu"),
        ("auto", 8, ProcessGroup(3, 4, 3, 4), "cuda:3"),
        ("auto", 8, ProcessGroup(11, 16, 3, 8), "cuda:3"),
        ("auto", 0, ProcessGroup(1, 2, 1, 2), "cpu"),
    ],
)
def test_each_process_takes_its_own(
    gpus: Callable[[int], None], name: str, count: int, processes: ProcessGroup, chosen: str
) -> None:
    gpus(count)
    device = choose_device(name, processes)
    assert device == torch.device(chosen)


@pytest.mark.parametrize(
    ("name", "count", "processes", "message"),
    [
        ("cuda", 0, ProcessGroup(), "cuda was asked for, but there are 0 usable GPUs"),
        ("cuda:8", 8, ProcessGroup(), "cuda:8 was asked for, but there are 8 usable GPUs"),
        ("auto", 2, ProcessGroup(0, 4, 0, 4), "4 processes on a machine with 2 usable GPUs"),
        ("cuda:1", 4, ProcessGroup(0, 2, 0, 2), "cuda:1 is one GPU, but there are 2 processes"),
    ],
)
def test_devices_that_cannot_be(
    gpus: Callable[[int], None], name: str, count: int, processes: ProcessGroup, message: str
) -> None:
    gpus(count)
    with pytest.raises(UsageError, match=message):
        choose_device(name, processes)


@pytest.mark.skipif(not keep_memory(), reason="needs glibc")
def test_kept_memory_is_given_back_when_asked_for() -> None:
    """Also what lies below memory that is still in use."""
    blocks = [torch.ones(1 << 18) for _ in range(80)]  # a MiB each
    last = torch.ones(1 << 18)
    full = memory_in_use(torch.device("cpu"))
    del blocks
    kept = memory_in_use(torch.device("cpu"))
    assert give_memory_back()
    assert full - kept < 20 << 20
    assert kept - memory_in_use(torch.device("cpu")) > 60 << 20
    assert float(last.sum()) == 1 << 18
