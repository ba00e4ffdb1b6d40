"""Gates over depth while a model reads text: how open they are, and how far back a layer's output reaches."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

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
    families = observe(inside, text.batches)
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


class GateStatistics(NamedTuple):
    """Mean and standard deviation of `size` values of a gate; the shares below `CLOSED` and above `OPEN`."""

    size: int
    mean: float
    deviation: float
    closed: float
    opened: float


def _sums(values: Tensor) -> Tensor:
    """How many values there are, their sum and that of squares, how many are closed and open, `[5]`."""
    wide = values.double()
    sums = (wide.sum(), wide.square().sum(), (values < CLOSED).sum(), (values > OPEN).sum())
    return torch.stack([wide.new_tensor(values.numel()), *sums])


def _statistics(sums: Tensor) -> GateStatistics:
    count = int(sums[0])
    mean, squares, closed, opened = (sums[1:] / count).tolist()
    return GateStatistics(count, mean, math.sqrt(max(0.0, squares - mean**2)), closed, opened)


@dataclass
class FamilyStatistics:
    """Gates of one kind in one stack, over all text.

    Attributes:
        side: Encoder or decoder.
        probe: One of the probes, for names and meanings.
        sums: As of `_sums`, by place and name of the gate; shares are by hop in the place of a place.
        kept: By pair (i, j) of places in depth order, i < j: the mean over tokens and features of the product
            of the keeping gates after place i up to place j, which is the share of what the state held after
            place i that is still in it after place j; i = -1 is the embedding. Empty without keeping gates.
    """

    side: str
    probe: GateProbe
    sums: dict[Place, dict[str, Tensor]] = field(default_factory=lambda: defaultdict(dict))
    kept: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Side and kind of gates."""
        return f"{self.side.capitalize()}, {self.probe.family}"

    def statistics(self) -> dict[Place, dict[str, GateStatistics]]:
        """The statistics of every gate at every place, from the bottom."""
        return {
            place: {gate: _statistics(sums) for gate, sums in self.sums[place].items()}
            for place in sorted(self.sums)
        }


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
                    parts = {place: values[words[side]]}
                    if probe.shares_of is not None:  # each feature is a hop
                        hops = enumerate(parts[place].unbind(-1))
                        parts = {Place(hop, f"hop {hop + 1}"): part for hop, part in hops}
                    for at, part in parts.items():
                        family.sums[at][name] = family.sums[at].get(name, 0) + _sums(part)
            for (side, name), family in families.items():
                if (keeps := family.probe.keeps) is None:
                    continue
                own = [each for each in seen if (each[0], each[1].family) == (side, name)]
                kept = [each[3][keeps][words[side]] for each in sorted(own, key=lambda each: each[2])]
                for begin in range(len(kept)):
                    product = torch.ones_like(kept[0])
                    for end in range(begin, len(kept)):
                        product, pair = product * kept[end], (begin - 1, end)
                        family.kept[pair] = family.kept.get(pair, 0) + _sums(product)
    return list(families.values())


Seen = tuple[Side, GateProbe, Place, Mapping[str, Tensor]]


@contextmanager
def _watched(model: TranslationModel) -> Iterator[list[Seen]]:
    """A list that receives the gates of every call while the block runs; it is emptied before each batch."""
    seen, running = list[Seen](), list[Side]()

    def watch(side: Side, probe: GateProbe) -> RemovableHandle:
        def look(_module: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
            if running[-1] == side:  # stacks may have modules in common
                place = probe.places[sum(each[1] is probe for each in seen)]
                seen.append((side, probe, place, probe.read(inputs, output)))

        return probe.module.register_forward_hook(look)

    with ExitStack() as hooks:
        for side, stack in model.stacks().items():
            begins = partial(lambda side, *_: running.append(side), side)
            hooks.callback(stack.register_forward_pre_hook(begins).remove)
            for probe in stack.gate_probes():
                hooks.callback(watch(side, probe).remove)
        yield seen


def _table(family: FamilyStatistics) -> Table:
    hops = family.probe.shares_of
    names = ("layer", "gate") if hops is None else ("hop", hops)
    ends = ("closed", "open") if hops is None else (f"below {CLOSED}", f"above {OPEN}")
    return Table(
        title=family.title,
        columns=[*names, "mean .3", "standard deviation .3", *(f"share {end} .3" for end in ends)],
        rows=[
            (place.name, gate, *statistics[1:])
            for place, gates in family.statistics().items()
            for gate, statistics in gates.items()
        ],
    )


def _figures(family: FamilyStatistics) -> Iterator[Figure]:
    statistics = family.statistics()
    name = f"{family.side}-{family.probe.family.lower().replace(' ', '-')}"
    gates = tuple(next(iter(statistics.values())))
    if family.probe.shares_of is not None:
        yield BarChart(
            name=name,
            title=f"{family.title}: shares",
            caption="Mean over words; the range is one standard deviation. The means of a hop sum to 1.",
            x=family.probe.shares_of,
            y="share of the attention",
            categories=gates,
            series=[_series(place.name, list(each.values())) for place, each in statistics.items()],
        )
        return
    yield BarChart(
        name=name,
        title=f"{family.title}: how open gates are",
        caption="Mean over words and features; the range is one standard deviation.",
        x="layer",
        y="openness (0 closed, 1 open)",
        categories=[place.name for place in statistics],
        series=[_series(gate, [each[gate] for each in statistics.values()]) for gate in gates],
    )
    if family.kept:
        rows = [place.name for place in statistics]
        kept = {pair: _statistics(sums).mean for pair, sums in family.kept.items()}
        yield HeatMap(
            name=f"{name}-reach",
            title=f"{family.title}: how far back a cell reaches",
            caption="Share of what the cell held after the layer of the column that is still in it after "
            f"that of the row: the product of the {family.probe.keeps} gates in between, as a mean.",
            row_axis="cell after layer",
            column_axis="what the cell held after layer",
            value="share that is left",
            rows=rows,
            columns=["embedding", *rows[:-1]],
            values=[[kept.get((begin - 1, end)) for begin in range(len(rows))] for end in range(len(rows))],
        )


def _series(name: str, gates: Sequence[GateStatistics]) -> Series:
    return Series(
        name=name,
        y=[gate.mean for gate in gates],
        low=[gate.mean - gate.deviation for gate in gates],
        high=[gate.mean + gate.deviation for gate in gates],
    )
