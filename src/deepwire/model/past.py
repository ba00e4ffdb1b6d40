"""What a decoder that keeps all positions remembers of them, so that reordering hypotheses moves none of it.

The hypotheses of a sentence began alike: most of what they have read is the same. So they form a group with
one store of slots. Each step fills one slot for each row of the group, and `seen` says which slots a row
descends from. A reordering changes `seen` alone; slots that no row descends from are left out when the store
is full. Attention reads a group's slots once for all of its rows, those that are still empty too: the store
as it lies in memory needs no copy, and its products have the same shape in many steps.
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

# Stores are a multiple of this, and grow by half when they are full of slots that are still seen.
_FIRST = 16


class Slots(NamedTuple):
    """State of self-attention: a key and a value for each slot, both `[groups, H, capacity, h]`.

    Empty slots hold finite numbers, as what attention does not see is multiplied by 0.
    """

    keys: Tensor
    values: Tensor

    def resized(self, used: int, capacity: int) -> Slots:
        """The first `used` slots in stores for `capacity`."""

        def grown(store: Tensor) -> Tensor:
            return pad(store[:, :, :used], (0, 0, 0, capacity - used))

        return Slots(grown(self.keys), grown(self.values))

    def chosen(self, slots: Tensor) -> Slots:
        """Slots `slots[g, i]` of group g come to place i, in stores of the same capacity."""

        def moved(store: Tensor) -> Tensor:
            wanted = slots[:, None, :, None].expand(-1, store.size(1), -1, store.size(3))
            return pad(store.gather(2, wanted), (0, 0, 0, store.size(2) - slots.size(1)))

        return Slots(moved(self.keys), moved(self.values))


class Moment(NamedTuple):
    """Where a decoder stands, in tensors: what a recorded step reads, since numbers would be fixed in it.

    Attributes:
        position: `[]` int64, see `Past`.
        slots: `[width]` int64, the slots of the rows of a group at this position.
    """

    position: Tensor
    slots: Tensor


class Lineage(NamedTuple):
    """Which slots the rows of a group descend from.

    Attributes:
        seen: `[groups, 1, width, capacity]`, 0 where the row descends from the slot; elsewhere, in empty
            slots too, the lowest number that attention adds to a score.
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
        lineage: None before the first position, and in decoders without slots.
        moment: In a step that is recorded, where the decoder stands each time that it is carried out.
    """

    groups: int
    width: int = 1
    position: int = 0
    used: int = 0
    capacity: int = 0
    lineage: Lineage | None = None
    moment: Moment | None = None

    @property
    def rows(self) -> int:
        """Of all groups."""
        return self.groups * self.width

    @property
    def now(self) -> int | Tensor:
        """The position, to calculate with."""
        return self.position if self.moment is None else self.moment.position

    @property
    def own(self) -> slice | Tensor:
        """The slots of this position's rows, once it has `begun`."""
        return slice(self.used - self.width, self.used) if self.moment is None else self.moment.slots

    def known(self) -> Lineage:
        """What the rows of a decoder with slots see of them.

        Raises:
            ValueError: nothing has been read yet, or this decoder has no slots.
        """
        if self.lineage is None:
            raise ValueError("there are no slots yet")
        return self.lineage

    @property
    def bias(self) -> Tensor:
        """What attention adds to the scores of all slots, `[groups, 1, width, capacity]`."""
        return self.known().seen

    @property
    def distance(self) -> Tensor:
        """Position of each slot less that of the rows, `[groups, 1, 1, capacity]`; in empty ones anything."""
        return (self.known().origin - self.now)[:, None, None]

    def begun(self) -> Past:
        """With a slot for each row at this position; there must be room for them."""
        begun = replace(self, used=self.used + self.width)
        if begun.lineage is not None:
            seen, origin, own = begun.lineage
            seen[..., begun.own] = own
            origin[:, begun.own] = begun.now
        return begun

    def following(self) -> Past:
        """Before the next position."""
        return replace(self, position=self.position + 1)

    def shared(self, width: int) -> Past:
        """Each row becomes `width` rows of its group, which share its slots."""
        seen, origin, _ = self.known()
        width *= self.width
        own = seen.new_full((width, width), lowest(seen.dtype)).fill_diagonal_(0.0)
        seen = seen.repeat_interleave(width // self.width, 2)
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

    def with_room(self, slots: Slots | None) -> tuple[Past, Callable[[Slots], Slots]]:
        """With room for another step, and what is to be done to the slots of all mixers for it.

        Slots that no row descends from are left out, if they are half of all; otherwise stores grow by half.

        Args:
            slots: Those of one mixer, for type and device; None in a decoder without any.
        """
        living = self._living()
        if living is not None and living.size(1) + self.width <= self.capacity:
            return self._chosen(living), partial(Slots.chosen, slots=living)
        grown = self._grown(None if slots is None else slots.keys)
        return grown, partial(Slots.resized, used=self.used, capacity=grown.capacity)

    def _grown(self, like: Tensor | None) -> Past:
        wanted = max(self.used + self.width, self.capacity * 3 // 2)
        capacity = -(-wanted // _FIRST) * _FIRST
        lineage = self.lineage
        if lineage is None and like is not None:
            hidden = like.new_empty(self.groups, 1, self.width, 0)
            origin = torch.empty(self.groups, 0, dtype=torch.int64, device=like.device)
            lineage = Lineage(hidden, origin, like.new_zeros(self.width, self.width))
        if lineage is not None:
            seen, origin, own = lineage
            more = (0, capacity - self.capacity)
            lineage = Lineage(pad(seen, more, value=lowest(seen.dtype)), pad(origin, more), own)
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
        seen, origin, own = self.known()
        count = slots.size(1)
        wanted, rest = slots[:, None, None].expand(-1, 1, self.width, -1), (0, self.capacity - count)
        lineage = Lineage(
            pad(seen.gather(3, wanted), rest, value=lowest(seen.dtype)),
            pad(origin.gather(1, slots), rest),
            own,
        )
        return replace(self, used=count, lineage=lineage)
