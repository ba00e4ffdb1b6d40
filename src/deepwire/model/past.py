"""What a decoder that keeps all positions remembers of them, so that reordering hypotheses moves none of it.

The hypotheses of a sentence began alike: most of what they have read is the same. So they form a group with
one store of slots. Each step fills one slot for each row of the group, and `seen` says which slots a row
descends from. A reordering changes `seen` alone; slots that no row descends from are left out when the store
is full. Attention reads a group's slots once for all of its rows.
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

# Slots of the first store; it doubles when it is full of slots that are still seen.
_FIRST = 16


class Slots(NamedTuple):
    """State of a mixer that keeps something of every position: `[groups, ..., capacity, h]`."""

    store: Tensor

    def resized(self, used: int, capacity: int) -> Slots:
        """The first `used` slots in a store for `capacity`."""
        grown = self.store.new_empty(*self.store.shape[:-2], capacity, self.store.size(-1))
        grown[..., :used, :] = self.store[..., :used, :]
        return Slots(grown)

    def chosen(self, slots: Tensor) -> Slots:
        """Slots `slots[g, i]` of group g come to place i, in a store of the same capacity."""
        count = slots.size(1)
        place = slots.view(slots.size(0), *[1] * (self.store.dim() - 3), count, 1)
        wanted = place.expand(*self.store.shape[:-2], count, self.store.size(-1))
        moved = torch.empty_like(self.store)
        moved[..., :count, :] = self.store.gather(-2, wanted)
        return Slots(moved)


class Lineage(NamedTuple):
    """Which slots the rows of a group descend from.

    Attributes:
        seen: `[groups, 1, width, capacity]`, 0 where the row descends from the slot, elsewhere the lowest
            number that attention adds to a score.
        origin: `[groups, capacity]`, the position that filled a slot.
        own: `[width, width]`, what `seen` says of the slots that the rows of a group have just filled.
    """

    seen: Tensor
    origin: Tensor
    own: Tensor


@dataclass(frozen=True)
class Past:
    """Where a decoder stands, and which slots its rows see; shared by all of its mixers.

    Attributes:
        groups: Groups of `width` rows each that follow each other; slots are kept by group.
        position: How many positions have been read before this one.
        used: Slots in use, those of this position included once `begun`.
        capacity: Slots that there is room for.
        lineage: None while a group is one row that sees every slot, and slot i was filled at position i.
    """

    groups: int
    width: int = 1
    position: int = 0
    used: int = 0
    capacity: int = 0
    lineage: Lineage | None = None

    @property
    def rows(self) -> int:
        """Of all groups."""
        return self.groups * self.width

    @property
    def bias(self) -> Tensor | None:
        """What attention adds to the scores of the used slots, `[groups, 1, width, used]`; None: nothing."""
        return None if self.lineage is None else self.lineage.seen[..., : self.used]

    def distance(self, device: torch.device) -> Tensor:
        """Position of each used slot minus that of the rows, broadcastable to `[groups, 1, 1, used]`."""
        if self.lineage is None:
            return torch.arange(self.used, device=device) - self.position
        return (self.lineage.origin[:, : self.used] - self.position).view(self.groups, 1, 1, self.used)

    def begun(self) -> Past:
        """With a slot for each row at this position; there must be room for them."""
        used = self.used + self.width
        if self.lineage is not None:
            seen, origin, own = self.lineage
            seen[..., self.used : used] = own
            origin[:, self.used : used] = self.position
        return replace(self, used=used)

    def following(self) -> Past:
        """Before the next position."""
        return replace(self, position=self.position + 1)

    def shared(self, width: int, like: Tensor) -> Past:
        """Each row becomes `width` rows of its group, which share its slots; type and device as `like`."""
        if self.lineage is None:
            seen = like.new_zeros(self.groups, 1, width, self.capacity)
            origin = torch.arange(self.capacity, device=like.device).repeat(self.groups, 1)
        else:
            seen, origin = self.lineage.seen.repeat_interleave(width, 2), self.lineage.origin
        width *= self.width
        own = like.new_full((width, width), lowest(like.dtype)).fill_diagonal_(0.0)
        return replace(self, width=width, lineage=Lineage(seen, origin, own))

    def take(self, rows: Tensor) -> Past:
        """Reorder rows within their groups."""
        if self.lineage is None:
            return self
        seen = self.lineage.seen
        moved = seen.view(self.rows, -1).index_select(0, rows).view(seen.shape)
        return replace(self, lineage=self.lineage._replace(seen=moved))

    def keep(self, groups: Tensor) -> Past:
        """Only these groups."""
        lineage = self.lineage
        if lineage is not None:
            seen, origin = (each.index_select(0, groups) for each in (lineage.seen, lineage.origin))
            lineage = lineage._replace(seen=seen, origin=origin)
        return replace(self, groups=groups.size(0), lineage=lineage)

    def with_room(self) -> tuple[Past, Callable[[Slots], Slots]]:
        """With room for another step, and what is to be done to the slots of all mixers for it.

        Slots that no row descends from are left out, if they are half of all; otherwise stores double.
        """
        living = self._living()
        if living is not None and living.size(1) + self.width <= self.capacity:
            return self._chosen(living), partial(Slots.chosen, slots=living)
        grown = self._grown()
        return grown, partial(Slots.resized, used=self.used, capacity=grown.capacity)

    def _grown(self) -> Past:
        capacity = max(_FIRST, 2 * self.capacity, self.used + self.width)
        lineage, more = self.lineage, (0, capacity - self.capacity)
        if lineage is not None:
            seen, origin = (pad(each, more) for each in (lineage.seen, lineage.origin))
            lineage = lineage._replace(seen=seen, origin=origin)
        return replace(self, capacity=capacity, lineage=lineage)

    def _living(self) -> Tensor | None:
        """Slots `[groups, n]` that some row of their group descends from, if n is at most half of those used.

        Where a group has fewer than n, slots that nobody sees fill up. None if there are more.
        """
        if self.lineage is None:
            return None
        alive = (self.lineage.seen[:, 0, :, : self.used] == 0).any(1)
        most = int(alive.sum(1).max())
        if 2 * most > self.used:
            return None
        return alive.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, :most]

    def _chosen(self, slots: Tensor) -> Past:
        """With slot `slots[g, i]` of group g at place i, and no others; they are among the `living`."""
        if self.lineage is None:
            raise ValueError("rows that see all slots need all of them")
        count = slots.size(1)
        wanted = slots[:, None, None].expand(-1, 1, self.width, -1)
        seen, origin = (torch.empty_like(each) for each in self.lineage[:2])
        seen[..., :count] = self.lineage.seen.gather(3, wanted)
        origin[:, :count] = self.lineage.origin.gather(1, slots)
        return replace(self, used=count, lineage=self.lineage._replace(seen=seen, origin=origin))
