"""Analyses of each member of every socket, beside ordinary choices."""

from __future__ import annotations

from contextlib import suppress

import pytest
from choices import SOCKETS, of_both_sides

from deepwire.errors import UsageError
from deepwire.lab.gates import observe
from deepwire.lab.layers import linearised, nearest_maps, similarities
from deepwire.lab.signals import Signal, signal_sizes
from deepwire.lab.subject import ReadText
from deepwire.lab.weights import depends_on_text, text_weights
from deepwire.model.stack_spec import SIDES
from deepwire.testing import batch, small_model
from deepwire.training.device import DeviceBatch


@pytest.mark.parametrize("socket", SOCKETS)
def test_every_choice_can_be_analysed(socket: str) -> None:
    """Weights of a text, gates, sizes of signals, similarities, linear layers; or a reason why not."""
    source, target_input, target_output = batch()
    read = DeviceBatch(source, target_input, target_output)
    text = ReadText("", [read])
    for number, (name, wanted) in enumerate(of_both_sides(socket)):
        model = small_model(wanted)
        of_text = list(text_weights(model, [read]))
        assert bool(of_text) is depends_on_text(model), name
        stacks = model.stacks()
        for _, each in of_text:
            assert each.values.shape[:2] == (len(each.rows), len(each.columns)), name
        probes = {(side, probe.family) for side in SIDES for probe in stacks[side].gate_probes()}
        assert {(each.side, each.probe.family) for each in observe(model, [read])} == probes, name
        sizes = signal_sizes(model, [read])
        assert max(size for signal, size in sizes.items() if signal.kind == "parameter gradient") > 0, name
        for side in SIDES:
            for index, call in enumerate(stacks[side].calls):
                places = (("reads", index), ("gives", index), ("enters", call.layer), ("output", call.layer))
                assert all(sizes[Signal(side, kind, number)] >= 0 for kind, number in places), name
            names = [weights.key for weights in stacks[side].depth_weights()]
            assert len(set(names)) == len(names), name
        side = SIDES[number % 2]  # one of them is enough
        with suppress(UsageError):  # a reason why not
            similarities(model, text, (side,))
        with suppress(UsageError):
            fit = nearest_maps(model, [side], [read])[side, 1]
            linearised(model, side, 1, fit.linear).log_probs(source, target_input)
