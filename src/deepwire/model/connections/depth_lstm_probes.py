"""Where analyses see the gates of a depth-wise LSTM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from torch import Tensor, nn

from deepwire.model.connections.connection import Call
from deepwire.model.introspection import GateProbe, Place

_MEANING = {
    "input": "the unit's hidden state enters the cell",
    "forget": "the cell of the unit below is kept",
    "output": "the cell leaves the unit",
}


def gate_probes(
    gates: Iterable[nn.Module], gate_of: Sequence[int], calls: Sequence[Call]
) -> tuple[GateProbe, ...]:
    """Input, forget and output gate of every unit.

    Args:
        gates: Modules that give the three gates.
        gate_of: Which of them each unit uses, lowest unit first.
        calls: Those at which the units of one layer run.
    """

    def place(unit: int) -> Place:
        layer, part = divmod(unit, len(calls))
        return Place(unit, f"{layer + 1} {calls[part].kind}" if len(calls) > 1 else str(layer + 1))

    return tuple(
        GateProbe(
            "depth-wise LSTM",
            module,
            tuple(place(unit) for unit, used in enumerate(gate_of) if used == number),
            _read,
            _MEANING,
            keeps="forget",
        )
        for number, module in enumerate(gates)
    )


def _read(_inputs: tuple[Tensor, ...], output: object) -> Mapping[str, Tensor]:
    return dict(zip(_MEANING, cast("tuple[Tensor, Tensor, Tensor]", output), strict=True))
