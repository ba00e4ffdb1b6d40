"""Gates over depth while a model reads text: how open they are, and how far back a layer's output reaches."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from deepwire.data.languages import Direction
from deepwire.errors import UsageError
from deepwire.lab.finding import BarChart, Figure, Finding, HeatMap, Series, Table, provenance
from deepwire.lab.subject import open_model, repeating, text_for
from deepwire.model.introspection import GateProbe, Place
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.training.device import DeviceBatch

CLOSED, OPEN = 0.1, 0.9


def analyse_gates(
    model: str,
    source: Path | None = None,
    reference: Path | None = None,
    sentences: int | None = 500,
    device: str = "cpu",
    direction: Direction | None = None,
) -> Finding:
    """How open the gates of a model are over real text (see `text_for`), place by place in depth.

    Raises:
        UsageError: The model has no gates over depth.
        ModelError, UsageError, DataError: There is no such model or text.
    """
    subject = open_model(model, device)
    inside = subject.loaded.model
    if not any(stack.gate_probes() for stack in inside.stacks().values()):
        raise UsageError(
            f"{model}: has no gates over depth",
            "depth-wise LSTMs, Runge-Kutta gates, self-dependency units and collaboration have them; "
            f"for weights see {shlex.join(['deepwire', 'analyze', 'weights', model])}",
        )
    if reason := repeating(inside):
        raise UsageError(f"{model}: gates have no single value: {reason}")
    text = text_for(subject, source, reference, sentences, direction)
    families = observe(inside, text.batches())
    return Finding(
        analysis="gates",
        title=f"Gates of {model}",
        measured=f"The model reads the text{text.past} and every gate is looked at for each word and each "
        "feature. Mean and standard deviation are over both; a gate counts as closed below "
        f"{CLOSED} and as open above {OPEN}.",
        tables=[_table(family) for family in families],
        figures=[figure for family in families for figure in _figures(family)],
        notes=sorted(
            {
                f"{family.probe.family}, {gate} gate 1: {meaning}."
                for family in families
                for gate, meaning in family.probe.meaning.items()
            }
        ),
        provenance=provenance([subject.source], [text.description]),
    )


@dataclass
class GateSums:
    """Sums over the values of one gate at one place: `closed` and `opened` count those beyond the limits."""

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

    @property
    def title(self) -> str:
        """Side and kind of gates."""
        return f"{self.side.capitalize()}, {self.probe.family}"

    def places(self) -> list[Place]:
        """All places, from the bottom."""
        return sorted(self.sums)


@torch.inference_mode()
def observe(model: TranslationModel, batches: Iterable[DeviceBatch]) -> list[FamilyStatistics]:
    """Let the model read text, with the reference as the decoder's past, and add up its gates.

    Padding is left out, and the model stays as it was. One entry for each kind of gate in each stack; none
    where the model has no gates over depth.
    """
    families: dict[tuple[Side, str], FamilyStatistics] = {}
    with _watched(model) as seen:
        for batch in batches:
            seen.clear()
            model.decode(batch.source, batch.target_input, languages=batch.languages)
            read = model.reads(batch.source, batch.target_input)
            words = {side: tokens != model.pad_id for side, tokens in read.items()}
            for side, probe, place, gates in seen:
                family = families.setdefault((side, probe.family), FamilyStatistics(side, probe))
                for name, values in gates.items():
                    for at, part in _parts(probe, place, values[words[side]]):
                        family.sums[at].setdefault(name, GateSums()).add(part)
            for (side, name), family in families.items():
                own = [each for each in seen if (each[0], each[1].family) == (side, name)]
                _follow(family, own, words[side])
    return list(families.values())


def _parts(probe: GateProbe, place: Place, values: Tensor) -> Iterator[tuple[Place, Tensor]]:
    """Values `[tokens, ...]` of a gate at its place; of shares each feature apart, which is a hop."""
    if probe.shares_of is None:
        yield place, values
    else:
        yield from ((Place(hop, f"hop {hop + 1}"), part) for hop, part in enumerate(values.unbind(-1)))


Seen = tuple[Side, GateProbe, Place, Mapping[str, Tensor]]


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
        for side, stack in model.stacks().items():
            watcher = _Watcher(side, seen)
            hooks.callback(stack.register_forward_pre_hook(watcher.begin).remove)
            hooks.callback(stack.register_forward_hook(watcher.end).remove)
            for probe in stack.gate_probes():
                hooks.callback(watcher.watch(probe))
        yield seen


class _Watcher:
    """Reads the probes of one stack, while that stack runs: stacks may have modules in common."""

    def __init__(self, side: Side, seen: list[Seen]) -> None:
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


def _table(family: FamilyStatistics) -> Table:
    hops = family.probe.shares_of
    names = ("layer", "gate") if hops is None else ("hop", hops)
    ends = ("closed", "open") if hops is None else (f"below {CLOSED}", f"above {OPEN}")
    return Table(
        title=family.title,
        columns=[*names, "mean .3", "standard deviation .3", *(f"share {end} .3" for end in ends)],
        rows=[
            (place.name, gate, sum_.mean, sum_.deviation, sum_.closed / sum_.count, sum_.opened / sum_.count)
            for place in family.places()
            for gate, sum_ in family.sums[place].items()
        ],
    )


def _figures(family: FamilyStatistics) -> Iterator[Figure]:
    places = family.places()
    name = f"{family.side}-{family.probe.family.lower().replace(' ', '-')}"
    gates = tuple(family.sums[places[0]])
    if family.probe.shares_of is not None:
        yield BarChart(
            name=name,
            title=f"{family.title}: shares",
            caption="Mean over words; the range is one standard deviation. The means of a hop sum to 1.",
            x=family.probe.shares_of,
            y="share of the attention",
            categories=gates,
            series=[_series(place.name, list(family.sums[place].values())) for place in places],
        )
        return
    yield BarChart(
        name=name,
        title=f"{family.title}: how open gates are",
        caption="Mean over words and features; the range is one standard deviation.",
        x="layer",
        y="openness (0 closed, 1 open)",
        categories=[place.name for place in places],
        series=[_series(gate, [family.sums[place][gate] for place in places]) for gate in gates],
    )
    if family.kept:
        yield _reach(family, name)


def _series(name: str, sums: Sequence[GateSums]) -> Series:
    """The mean of each, with one standard deviation below and above it."""
    return Series(
        name=name,
        y=[part.mean for part in sums],
        low=[part.mean - part.deviation for part in sums],
        high=[part.mean + part.deviation for part in sums],
    )


def _reach(family: FamilyStatistics, name: str) -> HeatMap:
    rows = [place.name for place in family.places()]
    kept = {pair: sums.mean for pair, sums in family.kept.items()}
    return HeatMap(
        name=f"{name}-reach",
        title=f"{family.title}: how far back a cell reaches",
        caption="Share of what the cell held after the layer of the column that is still in it after that "
        f"of the row: the product of the {family.probe.keeps} gates in between, as a mean.",
        row_axis="cell after layer",
        column_axis="what the cell held after layer",
        value="share that is left",
        rows=rows,
        columns=["embedding", *rows[:-1]],
        values=[[kept.get((begin - 1, end)) for begin in range(len(rows))] for end in range(len(rows))],
    )
