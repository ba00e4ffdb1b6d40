"""Keep freed memory in the process, so that every step does not ask the system for it again."""

from __future__ import annotations

import ctypes
import platform
import sys

# Names and numbers of glibc's malloc.h.
_TRIM_THRESHOLD = -1
_TOP_PAD = -2
_MMAP_MAX = -4
_NEVER = -1
_PAD = 64 << 20


def keep_memory() -> bool:
    """Tell glibc to serve large blocks from its heap and not to give freed memory back to the system.

    By default glibc maps each large block anew and unmaps it when it is freed, and the system clears every
    page again: for the temporary tensors of a training step on a CPU that costs a good part of the step.
    The price is that the process keeps its peak memory until it ends, or until `give_memory_back`. It holds
    for the whole process, other libraries in it included, and cannot be undone.

    Returns:
        Whether it was done: only on Linux with glibc.
    """
    if not _has_glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    done = True
    for name, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_TOP_PAD, _PAD)):
        done &= mallopt(name, value) == 1
    return done


def give_memory_back() -> bool:
    """Give what is free in the heap back to the system, whatever `keep_memory` said.

    What is needed again is asked for again, at the price of fresh pages: for a process with nothing to do.

    Returns:
        Whether something was given back: only on Linux with glibc.
    """
    return _has_glibc() and ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0)) == 1


def _has_glibc() -> bool:
    return sys.platform.startswith("linux") and platform.libc_ver()[0] == "glibc"
