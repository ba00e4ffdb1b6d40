"""Permissions that count: the superuser may read every file, and tests often run as the superuser."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION = 0x20080522
# CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
_MAY_READ_ALL = 0b110
Sets = ctypes.c_uint32 * 6
"""Effective, permitted and inheritable capabilities, the lower and the upper 32 of each."""


def obey_permissions() -> None:
    """From now on this thread may read and write what its user may, and no more."""
    sets = _capabilities()
    sets[0] &= ~_MAY_READ_ALL
    _set(sets)


@contextmanager
def permissions_obeyed() -> Iterator[None]:
    """Inside, this thread may read and write what its user may, and no more."""
    before = _capabilities()
    obey_permissions()
    try:
        yield
    finally:
        _set(before)


def _header() -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * 2)(_VERSION, 0)


def _capabilities() -> ctypes.Array[ctypes.c_uint32]:
    sets = Sets()
    _require(ctypes.CDLL(None, use_errno=True).capget(_header(), sets))
    return sets


def _set(sets: ctypes.Array[ctypes.c_uint32]) -> None:
    _require(ctypes.CDLL(None, use_errno=True).capset(_header(), sets))


def _require(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
