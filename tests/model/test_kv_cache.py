"""Hypotheses that share what they have read: whatever is reordered, each sees its own past and no other."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.model.kv_cache import KeyValueCache
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import SIZE, small_model

SOURCE = torch.tensor([[4, 9, 5, 17, 2], [8, 6, 2, 0, 0], [11, 2, 0, 0, 0]])
MIXERS: dict[str, dict[str, object]] = {
    "absolute": {},
    "relative": {"decoder": {"mixer": {"type": "self_attention", "relative": 3}}},
    "recurrent": {"decoder": {"mixer": "mhplstm"}},
}

WALKS = {
    "width": st.integers(1, 5),
    "steps": st.integers(2, 32),
    "restless": st.sampled_from([0.0, 0.3, 1.0]),
    "seed": st.integers(0, 2**16),
}


def walk(
    model: TranslationModel,
    width: int,
    steps: int,
    restless: float,
    seed: int,
    again: int = 1,
) -> tuple[float, int]:
    """Random steps and reorderings of hypotheses, some compared with the full pass, in double precision.

    After three steps each becomes `again` ones.
    Returns the largest difference of log-probabilities, and the capacity of the stores at the last step.
    """
    generator = torch.Generator().manual_seed(seed)
    source, worst = SOURCE, torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        state = model.start(source)
        read = torch.ones(len(source), 1, 1, dtype=torch.int64)
        found, state = model.step(read.flatten(), state)
        state, read = state.expand(width), read.expand(-1, width, -1)
        for step in range(1, steps):
            if step == 3:
                state, read, width = state.expand(again), read.repeat_interleave(again, 1), width * again
            if torch.rand((), generator=generator) < restless:
                parents = torch.randint(width, (len(source), width), generator=generator)
                state = state.reorder((torch.arange(len(source)).unsqueeze(1) * width + parents).flatten())
                read = read.gather(1, parents.unsqueeze(2).expand_as(read))
            if step == steps // 2:
                kept = torch.tensor([2, 0])
                state, source, read = state.keep(kept), source[kept], read[kept]
            tokens = torch.randint(4, SIZE, (len(source), width, 1), generator=generator)
            read = torch.cat([read, tokens], 2)
            found, state = model.step(tokens.flatten(), state)
            if step % 5 == 0 or step == steps - 1:
                full = model.log_probs(source.repeat_interleave(width, 0), read.flatten(0, 1))[:, -1]
                worst = torch.maximum(worst, (found.double() - full).abs().max())
    return float(worst), state.index.capacity


@pytest.mark.parametrize("mixer", MIXERS)
@given(**WALKS, again=st.integers(1, 2))
@settings(max_examples=8, deadline=None)
def test_each_row_sees_its_own_past(
    mixer: str, width: int, steps: int, restless: float, seed: int, again: int
) -> None:
    """Rows begin as one, multiply, are reordered with and without repetition, and sentences leave."""
    model = double(MIXERS[mixer])
    error, _ = walk(model, width, steps, restless, seed, again)
    assert error <= 1e-9


def double(changes: dict[str, object]) -> TranslationModel:
    model = small_model({"max_length": 64, **changes}).double()
    return model.eval()


def test_a_reordering_moves_no_keys() -> None:
    """Only what says which slots a row sees is made anew."""
    model = double({})
    with torch.no_grad():
        _, state = model.step(torch.tensor([1, 1, 1]), model.start(SOURCE))
        before = state.expand(4)
        after = before.reorder(torch.tensor([1, 0, 3, 3, 4, 4, 4, 4, 9, 8, 11, 11]))
    stores = [state.keys for state in before.states if isinstance(state, KeyValueCache)]
    assert stores
    for old, new in zip(before.states, after.states, strict=True):
        assert new is old
    assert all(
        memory is kept for memory, kept in zip(before.context.memory, after.context.memory, strict=True)
    )


def test_slots_that_nobody_sees_make_room() -> None:
    """Hypotheses that always descend from one keep a store that grows with the text, not with the beam."""
    lively, idle = (walk(double({}), 4, 60, restless, 1)[1] for restless in (1.0, 0.0))
    assert lively <= 128
    assert idle >= 4 * 59
