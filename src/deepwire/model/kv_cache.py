"""The key/value cache of decoders with self-attention, laid out so that a beam reorder moves no key or value.

The hypotheses of a sentence began alike: most of the tokens that they have read are the same. So they form a
group with one cache. Each step fills one cache slot for each row of the group, and the beam ancestry says
which slots a row descends from. A beam reorder changes the ancestry alone (`CacheIndex.reorder`); slots that
no row descends from are dropped when the cache is full. Attention reads the cache of a group once for all of
its rows, including slots that are still empty: the cache as it lies in memory needs no copy, and its products
have the same shape in many steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from deepwire.ops.attention import lowest

# Capacities are multiples of this, and grow by half when the cache is full of slots that are still visible.
CAPACITY_STEP = 16


class KeyValueCache(NamedTuple):
    """Cache of one self-attention: a key and a value for each slot, both `[groups, H, capacity, h]`.

    Empty slots hold finite numbers, because what attention masks is multiplied by 0.
    """

    keys: Tensor
    values: Tensor

    def resized(self, used: int, capacity: int) -> KeyValueCache:
        """The first `used` slots in a cache for `capacity`."""

        def resize(cached: Tensor) -> Tensor:
            return pad(cached[:, :, :used], (0, 0, 0, capacity - used))

        return KeyValueCache(resize(self.keys), resize(self.values))

    def gathered(self, slots: Tensor) -> KeyValueCache:
        """Slot `slots[g, i]` of group g becomes slot i, in a cache of the same capacity."""

        def gather(cached: Tensor) -> Tensor:
            index = slots[:, None, :, None].expand(-1, cached.size(1), -1, cached.size(3))
            return pad(cached.gather(2, index), (0, 0, 0, cached.size(2) - slots.size(1)))

        return KeyValueCache(gather(self.keys), gather(self.values))


class GraphStep(NamedTuple):
    """Position and slots of a step as tensors: a captured CUDA graph reads them, as it would fix numbers.

    Attributes:
        position: `[]` int64, see `CacheIndex`.
        slots: `[width]` int64, the slots of the rows of a group at this position.
    """

    position: Tensor
    slots: Tensor


class BeamAncestry(NamedTuple):
    """Which slots the rows of a group descend from.

    Attributes:
        mask: `[groups, 1, width, capacity]`, added to attention scores: 0 where the row descends from the
            slot; elsewhere, also in empty slots, the lowest number that attention adds to a score.
        positions: `[groups, capacity]`, the position that filled each slot.
        own_mask: `[width, width]`, the `mask` of the slots that the rows of a group have just filled.
    """

    mask: Tensor
    positions: Tensor
    own_mask: Tensor


@dataclass(frozen=True)
class CacheIndex:
    """The position of a decoder, and which cache slots its rows attend to; shared by all of its mixers.

    Attributes:
        groups: Groups of `width` consecutive rows each; each group has one cache.
        position: How many positions have been read before this one.
        used: Slots in use, including those of this position once it has been `allocate_slots`.
        capacity: Slots that there is room for.
        ancestry: None before the first position, and in decoders without a key/value cache.
        skipped: `[groups]` int64, positions from the first on that the rows of a group passed by without
            reading, so that prompts of different lengths end together; None: they read all.
        length: In the pass over prompts (prefill), how many positions from the first on are read at once; 0
            in a step.
        passing: In that pass, the positions that some rows pass by.
        graph_step: In a step that is captured as a CUDA graph, its position and slots at each replay.
    """

    groups: int
    width: int = 1
    position: int = 0
    used: int = 0
    capacity: int = 0
    ancestry: BeamAncestry | None = None
    skipped: Tensor | None = None
    length: int = 0
    passing: int = 0
    graph_step: GraphStep | None = None

    @property
    def rows(self) -> int:
        """Rows of all groups."""
        return self.groups * self.width

    @property
    def current_position(self) -> int | Tensor:
        """The position, to calculate with."""
        return self.position if self.graph_step is None else self.graph_step.position

    @property
    def query_position(self) -> int | Tensor | None:
        """The position of all queries of a step; None in a prompt, whose positions begin at 0."""
        return None if self.length else self.current_position

    def grouped(self, x: Tensor) -> Tensor:
        """Vectors of rows `[rows, T, d]` by group, `[groups, width T, d]`: queries to one cache."""
        return x.reshape(self.groups, -1, x.size(-1))

    @property
    def count(self) -> int | Tensor:
        """How many positions the rows have read with this one; a number, `[]`, or `[rows, 1, 1]`."""
        count = self.current_position + 1
        if self.skipped is None:
            return count
        return (count - self.skipped).clamp(min=1).repeat_interleave(self.width)[:, None, None]

    @property
    def own_slots(self) -> slice | Tensor:
        """The slots of the rows at this position, once it has been `allocate_slots`."""
        if self.graph_step is None:
            return slice(self.used - self.width * max(self.length, 1), self.used)
        return self.graph_step.slots

    @property
    def bias(self) -> Tensor:
        """Bias of attention for the scores of all slots, `[groups, 1, width, capacity]`."""
        assert self.ancestry is not None
        return self.ancestry.mask

    @property
    def distance(self) -> Tensor:
        """Position of each slot minus that of the rows, `[groups, 1, 1, capacity]`; empty slots: anything."""
        assert self.ancestry is not None
        return (self.ancestry.positions - self.current_position)[:, None, None]

    def store(self, cache: KeyValueCache, keys: Tensor, values: Tensor) -> KeyValueCache:
        """The cache with keys and values of the rows at this position, `[groups, H, width, h]`.

        Consumes `cache`; the index must have `allocate_slots` the position.
        """
        cache.keys[:, :, self.own_slots], cache.values[:, :, self.own_slots] = keys, values
        return cache

    def allocate_slots(self) -> CacheIndex:
        """With a slot for each row at this position; there must be room for them."""
        begun = replace(self, used=self.used + self.width * max(self.length, 1))
        if begun.ancestry is not None:
            mask, positions, own_mask = begun.ancestry
            if not self.length:
                mask[..., begun.own_slots] = own_mask
                positions[:, begun.own_slots] = begun.current_position
                return begun
            read = torch.arange(self.length, device=positions.device)
            positions[:, begun.own_slots] = read
            mask[..., begun.own_slots] = 0.0
            if self.skipped is not None:
                hidden = (read < self.skipped.unsqueeze(1))[:, None, None]
                mask[..., begun.own_slots].masked_fill_(hidden, lowest(mask.dtype))
        return begun

    def start_prefill(self, lengths: Tensor, shortest: int, longest: int) -> CacheIndex:
        """For a pass over prompts of so many tokens, `[groups]`, before anything else; all end together."""
        skipped = longest - lengths if shortest < longest else None
        return replace(self, skipped=skipped, length=longest, passing=longest - shortest)

    def at(self, position: int) -> CacheIndex:
        """In a pass over prompts, for the step of a mixer that has no key/value cache."""
        return replace(self, position=position, length=0)

    @property
    def prompt_bias(self) -> Tensor | None:
        """Bias of attention for the positions of a pass over prompts, `[groups, 1, 1, T]`."""
        return None if self.skipped is None else self.bias[..., self.own_slots]

    def advance(self) -> CacheIndex:
        """Before the next position."""
        return replace(self, position=self.position + max(self.length, 1), length=0, passing=0)

    def expand(self, width: int) -> CacheIndex:
        """Each row becomes `width` rows of its group, which share its slots."""
        assert self.ancestry is not None
        mask, positions, _ = self.ancestry
        width *= self.width
        own_mask = mask.new_full((width, width), lowest(mask.dtype)).fill_diagonal_(0.0)
        mask = mask.repeat_interleave(width // self.width, 2)
        return replace(self, width=width, ancestry=BeamAncestry(mask, positions, own_mask))

    def reorder(self, rows: Tensor) -> CacheIndex:
        """The beam reorder: new row i continues old row `rows[i]` of its group and takes over its slots."""
        if self.ancestry is None:
            return self
        mask = self.ancestry.mask
        reordered = mask.view(self.rows, -1).index_select(0, rows).view(mask.shape)
        return replace(self, ancestry=self.ancestry._replace(mask=reordered))

    def keep(self, groups: Tensor) -> CacheIndex:
        """Only these groups."""
        ancestry = self.ancestry
        if ancestry is not None:
            mask, positions = (
                tensor.index_select(0, groups) for tensor in (ancestry.mask, ancestry.positions)
            )
            ancestry = ancestry._replace(mask=mask, positions=positions)
        skipped = None if self.skipped is None else self.skipped.index_select(0, groups)
        return replace(self, groups=groups.size(0), ancestry=ancestry, skipped=skipped)

    def ensure_capacity(
        self, cache: KeyValueCache | None, steps: int = 1
    ) -> tuple[CacheIndex, Callable[[KeyValueCache], KeyValueCache]]:
        """The index with room for so many steps, and the function that changes the cache of each mixer alike.

        Slots that no row descends from are dropped if they are at least half of all; otherwise the capacity
        grows by half.

        Args:
            cache: That of one mixer, for type and device; None in a decoder without any.
            steps: Each takes a slot for every row.
        """
        live = self._live_slots()
        if live is not None and live.size(1) + steps * self.width <= self.capacity:
            return self._gathered(live), partial(KeyValueCache.gathered, slots=live)
        grown = self._grown(None if cache is None else cache.keys, steps)
        return grown, partial(KeyValueCache.resized, used=self.used, capacity=grown.capacity)

    def _grown(self, like: Tensor | None, steps: int) -> CacheIndex:
        needed = max(self.used + steps * self.width, self.capacity * 3 // 2)
        capacity = -(-needed // CAPACITY_STEP) * CAPACITY_STEP
        ancestry = self.ancestry
        if ancestry is None and like is not None:
            mask = like.new_empty(self.groups, 1, self.width, 0)
            positions = torch.empty(self.groups, 0, dtype=torch.int64, device=like.device)
            ancestry = BeamAncestry(mask, positions, like.new_zeros(self.width, self.width))
        if ancestry is not None:
            mask, positions, own_mask = ancestry
            added = (0, capacity - self.capacity)
            mask = pad(mask, added, value=lowest(mask.dtype))
            ancestry = BeamAncestry(mask, pad(positions, added), own_mask)
        return replace(self, capacity=capacity, ancestry=ancestry)

    def _live_slots(self) -> Tensor | None:
        """Slots `[groups, n]` that some row of their group descends from, if n is at most half of those used.

        Groups with fewer than n are filled up with slots that no row descends from. None if there are more.
        """
        if self.ancestry is None or self.ancestry.mask.is_meta:  # without values nobody can see
            return None
        live = (self.ancestry.mask[:, 0, :, : self.used] == 0).any(1)
        most = int(live.sum(1).max())
        if 2 * most > self.used:
            return None
        return live.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, :most]

    def _gathered(self, slots: Tensor) -> CacheIndex:
        """Slot `slots[g, i]` of group g becomes slot i, and all others are dropped."""
        assert self.ancestry is not None
        mask, positions, own_mask = self.ancestry
        count = slots.size(1)
        index, rest = slots[:, None, None].expand(-1, 1, self.width, -1), (0, self.capacity - count)
        ancestry = BeamAncestry(
            pad(mask.gather(3, index), rest, value=lowest(mask.dtype)),
            pad(positions.gather(1, slots), rest),
            own_mask,
        )
        return replace(self, used=count, ancestry=ancestry)
