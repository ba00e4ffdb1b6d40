"""Seeds of single updates: finished runs must come out the same when they are made again."""

from __future__ import annotations

import hashlib

import pytest

from deepwire.training.layer_drop import update_seed


@pytest.mark.parametrize(
    ("purpose", "text"),
    [("", "7 update 12"), ("process 3", "7 update 12 process 3"), ("layers", "7 update 12 layers")],
)
def test_the_seed_is_the_digest_of_these_words(purpose, text):
    digest = hashlib.blake2b(text.encode(), digest_size=7).digest()
    assert update_seed(7, 12, purpose) == int.from_bytes(digest, "little")
