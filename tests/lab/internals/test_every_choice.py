"""Analyses of each member of every socket, beside ordinary choices."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest
from deepwire.lab.depth.layer_similarity import similarities
from deepwire.lab.linearisation import Cell, linearised, width
from torch import nn

from deepwire.errors import UsageError
from deepwire.lab.internals.gates import observe
from deepwire.lab.internals.signal_sizes import signal_sizes
from deepwire.lab.internals.text_weights import depends_on_text, text_weights
from deepwire.lab.subject.document_text import ReadText
from deepwire.lab.subject.model_and_text import PairBatch
from deepwire.model.stack_spec import SIDES, Side
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import batch, small_model
from deepwire.training.device import DeviceBatch
from deepwire.training.extras import gradient_norms, layers_of

sys.path.insert(0, str(Path(__file__).parents[2] / "model"))
from choices import SOCKETS, of_both_sides


@pytest.mark.parametrize("socket", SOCKETS)
def test_every_choice_can_be_analysed(socket: str) -> None:
    """Weights of a text, gates, sizes of signals, similarities, linear layers; or a reason why not."""
    source, target_input, target_output = batch()
    pairs = [PairBatch(source, target_input, target_output, (0, 1, 2))]
    text = ReadText("", pairs=True, batches=lambda: iter(pairs))
    for name, wanted in of_both_sides(socket):
        model = small_model(wanted)
        of_text = list(text_weights(model, pairs))
        assert bool(of_text) is depends_on_text(model), name
        stacks = model.stacks()
        for _, each in of_text:
            assert each.values.shape[:2] == (len(each.rows), len(each.columns)), name
        probes = {(side, probe.family) for side in SIDES for probe in stacks[side].gate_probes()}
        assert {(each.side, each.probe.family) for each in observe(model, pairs)} == probes, name
        sizes = signal_sizes(model, [DeviceBatch(source, target_input, target_output)])
        assert {*sizes.gradients} <= {*gradient_norms(layers_of(model))}, name
        for side in SIDES:
            for analyse in (
                lambda side=side, model=model: similarities(model, text, (side,)),
                lambda side=side, model=model: replaced(model, side, "carry").log_probs(source, target_input),
                lambda side=side, model=model: replaced(model, side, "map"),
            ):
                with suppress(UsageError):  # a reason why not
                    analyse()


def replaced(model: TranslationModel, side: Side, cell: Cell) -> TranslationModel:
    """The model whose first layer of a side is a linear map."""
    size = width(model, side, cell)
    return linearised(model, side, 1, nn.Linear(size, size), cell)
