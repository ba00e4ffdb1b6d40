from __future__ import annotations

import mmap
import os
import platform
import subprocess
import sys

import pytest

from deepwire.ops import allocator
from deepwire.ops.allocator import Surplus, resident_memory

MIB = 1 << 20
GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")

THREADS_IN_TURN = """
import os, sys, threading
from deepwire.ops.allocator import keep_memory, resident_memory, share_memory
if sys.argv[1] == "shared":
    share_memory()
keep_memory()
turns = [threading.Event() for _ in range(5)]

def work(number):
    turns[number].wait()
    blocks = [bytearray(b"x" * (1 << 20)) for _ in range(40)]
    del blocks
    turns[number + 1].set()
    turns[4].wait()

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
before = resident_memory()
turns[0].set()
for thread in threads:
    thread.join()
print((resident_memory() - before) >> 20, os.environ.get("ONEDNN_PRIMITIVE_CACHE_CAPACITY"))
"""


@GLIBC
def test_threads_that_share_memory_keep_one_peak_and_not_one_each() -> None:
    def grown(how: str) -> tuple[int, str]:
        command = [sys.executable, "-c", THREADS_IN_TURN, how]
        own = {name: value for name, value in os.environ.items() if name != "ONEDNN_PRIMITIVE_CACHE_CAPACITY"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=own)
        megabytes, kernels = done.stdout.split()
        return int(megabytes), kernels

    alone, shared = grown("alone"), grown("shared")
    assert alone[0] > 120
    assert shared[0] < 80
    assert (alone[1], shared[1]) == ("None", "128")


def test_a_surplus_is_given_back_and_no_more_often_than_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    now, given = [100 * MIB], []

    def give() -> None:
        given.append(now[0] // MIB)
        now[0] -= 60 * MIB

    monkeypatch.setattr(allocator, "resident_memory", lambda: now[0])
    monkeypatch.setattr(allocator, "give_memory_back", give)
    surplus = Surplus(50 * MIB)
    for megabytes in (100, 150, 151, 120, 141, 90, 141):
        now[0] = megabytes * MIB
        surplus.check()
    # 151 is more than 100 + 50, and leaves 91; then 90 is the least, and 141 more than 90 + 50.
    assert given == [151, 141]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says it in this way")
def test_what_is_used_is_in_memory() -> None:
    before = resident_memory()
    # Pages that the process did not have before, as those that tests have freed may be.
    with mmap.mmap(-1, 64 * MIB) as block:
        block.write(b"x" * (64 * MIB))
        assert resident_memory() - before > 50 * MIB
