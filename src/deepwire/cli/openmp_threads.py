"""How long idle threads of a parallel computation wait awake; used before torch is imported."""

from __future__ import annotations

import os

_SPINS = "20000"


def limit_openmp_spinning() -> None:
    """Let idle threads of GNU OpenMP go to sleep after some tens of microseconds and not after a millisecond.

    A thread that waits awake for its next piece of work starts it sooner. But where another program wants the
    same core, it keeps that program, or worse a working thread of its own, from running: beside another busy
    program, training was more than ten times slower with the default. What the user has set is left alone.

    It has an effect only before torch is imported for the first time.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
