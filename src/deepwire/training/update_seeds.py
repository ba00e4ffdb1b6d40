"""Seeds of the random numbers of single updates."""

from __future__ import annotations

import hashlib


def update_seed(seed: int, update: int, purpose: str = "") -> int:
    """A function of the run's seed, the number of the update and what the numbers are for; below 2^56.

    The seed for dropout on the first process has no purpose.
    """
    text = f"{seed} update {update} {purpose}".rstrip()
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")
