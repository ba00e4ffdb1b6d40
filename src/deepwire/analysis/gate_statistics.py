"""The values of gates while a model reads text: taken by forward hooks, added up without keeping them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from deepwire.analysis.models import Batch
from deepwire.model.encoder_decoder import TranslationModel
from deepwire.model.introspection import GateProbe, Place

CLOSED, OPEN = 0.1, 0.9


@dataclass
class GateSums:
    """What is known of one gate at one place.

    Attributes:
        count: Values seen: tokens times features.
        total, squares: Sums of the values and of their squares.
        closed, opened: Values below `CLOSED` and above `OPEN`.
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    closed: int = 0
    opened: int = 0

    def add(self, values: Tensor) -> None:
        """Take in values of any shape."""
        self.count += values.numel()
        self.total += float(values.sum(dtype=torch.float64))
        self.squares += float(values.double().square().sum())
        self.closed += int((values < CLOSED).sum())
        self.opened += int((values > OPEN).sum())

    @property
    def mean(self) -> float:
        """Mean value."""
        return self.total / self.count

    @property
    def deviation(self) -> float:
        """Standard deviation over tokens and features."""
        return math.sqrt(max(0.0, self.squares / self.count - self.mean**2))


@dataclass
class FamilyStatistics:
    """Gates of one kind in one stack, over all text.

    Attributes:
        side: Encoder or decoder.
        probe: One of the probes, for names and meanings.
        sums: By place and name of the gate; shares are by hop in the place of a place.
        kept: By pair (i, j) of places in depth order, i < j: the mean over tokens and features of the product
            of the keeping gates after place i up to place j, which is the share of what the state held after
            place i that is still in it after place j; i = -1 is the embedding. Empty without keeping gates.
    """

    side: str
    probe: GateProbe
    sums: dict[Place, dict[str, GateSums]] = field(default_factory=lambda: defaultdict(dict))
    kept: dict[tuple[int, int], GateSums] = field(default_factory=dict)

    def places(self) -> list[Place]:
        """All places, from the bottom."""
        return sorted(self.sums)


@torch.inference_mode()
def observe(model: TranslationModel, batches: Iterable[Batch]) -> list[FamilyStatistics]:
    """Let the model read text, with the reference as the decoder's past, and add up its gates.

    Padding is left out. The model is as it was afterwards.

    Returns:
        One entry for each kind of gate in each stack; none where the model has no gates over depth.
    """
    found: dict[tuple[str, str], FamilyStatistics] = {}
    with _watched(model) as seen:
        for batch in batches:
            seen.clear()
            model.decode(batch.source, batch.target_input, languages=batch.languages)
            words = {"encoder": batch.source != model.pad_id, "decoder": batch.target_input != model.pad_id}
            for side, probe, place, gates in seen:
                family = found.setdefault((side, probe.family), FamilyStatistics(side, probe))
                for name, values in gates.items():
                    for at, part in _parts(probe, place, values[words[side]]):
                        family.sums[at].setdefault(name, GateSums()).add(part)
            for (side, name), family in found.items():
                _follow(
                    family, [each for each in seen if (each[0], each[1].family) == (side, name)], words[side]
                )
    return list(found.values())


def _parts(probe: GateProbe, place: Place, values: Tensor) -> Iterator[tuple[Place, Tensor]]:
    """Values `[tokens, ...]` of a gate at its place; of shares each feature apart, which is a hop."""
    if probe.shares_of is None:
        yield place, values
    else:
        yield from ((Place(hop, f"hop {hop + 1}"), part) for hop, part in enumerate(values.unbind(-1)))


Seen = tuple[str, GateProbe, Place, Mapping[str, Tensor]]


def _follow(family: FamilyStatistics, seen: list[Seen], words: Tensor) -> None:
    """Add the products of the keeping gates of one batch."""
    keeps = family.probe.keeps
    if keeps is None:
        return
    gates = [each[3][keeps][words] for each in sorted(seen, key=lambda each: each[2])]
    for begin in range(len(gates)):
        product = torch.ones_like(gates[0])
        for end in range(begin, len(gates)):
            product = product * gates[end]
            family.kept.setdefault((begin - 1, end), GateSums()).add(product)


@contextmanager
def _watched(model: TranslationModel) -> Iterator[list[Seen]]:
    """A list that receives the gates of every call while the block runs."""
    seen: list[Seen] = []
    with ExitStack() as hooks:
        for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            watcher = _Watcher(side, seen)
            hooks.callback(stack.register_forward_pre_hook(watcher.begin).remove)
            hooks.callback(stack.register_forward_hook(watcher.end).remove)
            for probe in stack.gate_probes():
                hooks.callback(watcher.watch(probe))
        yield seen


class _Watcher:
    """Reads the probes of one stack, while that stack runs: stacks may have modules in common."""

    def __init__(self, side: str, seen: list[Seen]) -> None:
        self._side, self._seen = side, seen
        self._calls: dict[int, int] | None = None

    def begin(self, _stack: nn.Module, _inputs: object) -> None:
        self._calls = defaultdict(int)

    def end(self, _stack: nn.Module, _inputs: object, _output: object) -> None:
        self._calls = None

    def watch(self, probe: GateProbe) -> Callable[[], None]:
        def look(_module: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
            if self._calls is not None:
                place = probe.places[self._calls[id(probe)]]
                self._calls[id(probe)] += 1
                self._seen.append((self._side, probe, place, probe.read(inputs, output)))

        return probe.module.register_forward_hook(look).remove
