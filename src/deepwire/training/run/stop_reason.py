"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StopReason:
    """Why the loop stopped.

    Attributes:
        reason: What ended it, such as ``training.max_updates=20000`` or ``SIGTERM``.
        finished: Whether the run is complete; an interrupted run is not.
        exit_code: For the shell: 0, or 128 + the number of the signal.
    """

    reason: str
    finished: bool
    exit_code: int = 0
