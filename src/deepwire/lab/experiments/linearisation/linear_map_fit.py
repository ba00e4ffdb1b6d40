"""The linear map that takes a layer's place: fitted to the layer's output, or to the translation loss.

The preprint says that W and b are "trained on the same training set with the other parts frozen" to distil
the layer; the loss is not named. Both readings are here. Dropout is off in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deepwire.distributed.process_group import ProcessGroup
from deepwire.lab.experiments.linearisation.linear_layer import Cell, LayerTap, linearised, width
from deepwire.model.context import Side
from deepwire.model.encoder_decoder import EncoderDecoder
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.training.device_batches import DeviceUpdate
from deepwire.training.optimizers.adam import Adam, AdamWConfig
from deepwire.training.optimizers.optimizer import Optimizer
from deepwire.training.parallel_strategy import ParallelStrategy
from deepwire.training.schedule import CosineConfig


@dataclass(frozen=True)
class Fit:
    """A fitted map.

    Attributes:
        linear: The map.
        explained: Share of the variance of the layer's output that it explains, at most 1; nan where the
            output does not vary.
        positions: Positions that it was fitted on.
    """

    linear: nn.Linear
    explained: float
    positions: int


class LeastSquares:
    """The map W x + b that is nearest to y, for pairs that come in batches; only sums are kept.

    Args:
        inputs: Features of x.
        outputs: Features of y.
        device: Where the pairs are.
    """

    def __init__(self, inputs: int, outputs: int, device: torch.device) -> None:
        self.positions = 0
        self._gram = torch.zeros(inputs + 1, inputs + 1, dtype=torch.float64, device=device)
        self._cross = torch.zeros(inputs + 1, outputs, dtype=torch.float64, device=device)
        self._squares = torch.zeros(outputs, dtype=torch.float64, device=device)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Take in pairs, `[N, inputs]` and `[N, outputs]`."""
        x, y = x.double(), y.double()
        x = torch.cat((x, x.new_ones(len(x), 1)), -1)
        self._gram += x.t() @ x
        self._cross += x.t() @ y
        self._squares += y.square().sum(0)
        self.positions += len(x)

    def solve(self) -> Fit:
        """The map with the least sum of squared errors; of several, the one with the smallest weights."""
        solution = torch.linalg.pinv(self._gram, hermitian=True) @ self._cross
        linear = nn.Linear(len(solution) - 1, solution.size(1), device=solution.device)
        with torch.no_grad():
            linear.weight.copy_(solution[:-1].t())
            linear.bias.copy_(solution[-1])
        mean = self._cross[-1] / max(self.positions, 1)
        spread = (self._squares - self.positions * mean.square()).sum()
        wrong = (self._squares - 2 * (solution * self._cross).sum(0)).sum()
        wrong = wrong + (solution * (self._gram @ solution)).sum()
        return Fit(linear, float(1 - wrong / spread) if spread > 0 else float("nan"), self.positions)


@torch.no_grad()
def match(
    model: TranslationModel,
    side: Side,
    layers: Sequence[int],
    updates: Iterable[DeviceUpdate],
    cell: Cell = "carry",
) -> dict[int, Fit]:
    """For each layer (from 1) the map nearest to its output by mean squared error, exactly, in one pass.

    The layer reads what it reads in the model as it is. With `cell` "map" the layer's new cell is matched
    too.

    Raises:
        UsageError: There is no cell to map.
    """
    numbers = [layer - 1 for layer in layers]
    stack = model.stack(side)
    tap = LayerTap(stack.connection, numbers)
    watched = model.with_stacks(**{side: stack.with_parts(connection=tap)}).eval()
    size = width(model, side, cell)
    device = next(model.parameters()).device
    sums = {number: LeastSquares(size, size, device) for number in numbers}
    for update in updates:
        for batch in update.batches:
            if side == "encoder" and isinstance(watched, EncoderDecoder):
                watched.encode(batch.source, languages=batch.languages)
            else:
                watched.decode(batch.source, batch.target_input, languages=batch.languages)
            real = watched.reads(batch.source, batch.target_input)[side] != model.pad_id
            for number, least in sums.items():
                x, y = (_passed(state, cell)[real] for state in (tap.before[number], tap.after[number]))
                least.add(x, y)
    return {number + 1: least.solve() for number, least in sums.items()}


def train_on_translation(
    model: TranslationModel,
    side: Side,
    layer: int,
    linear: nn.Linear,
    updates: Sequence[DeviceUpdate] | Iterator[DeviceUpdate],
    *,
    count: int,
    rate: float,
    smoothing: tuple[float, SmoothingForm],
    cell: Cell = "carry",
) -> list[float]:
    """Train the map in place of a layer (from 1) by the translation loss, everything else frozen.

    Args:
        model: The model as it is; its parameters do not change.
        side, layer, cell: See `linearised`.
        linear: Where to begin; changed in place.
        updates: At least `count`.
        count: Steps of Adam, at a rate that falls from `rate` to nothing along half a cosine.
        rate: The first learning rate.
        smoothing: Mass and form of label smoothing.

    Returns:
        The smoothed loss of each update per target token, in nats.
    """
    changed = linearised(model, side, layer, linear, cell).eval()
    schedule = CosineConfig(peak=rate, warmup=0).build(d_model=model.config.d_model, max_updates=count)
    losses = []
    with _only(changed, linear):
        strategy = ParallelStrategy(changed, ProcessGroup())
        learning = dict(linear.named_parameters())
        optimizer = Optimizer(learning.items(), [Adam(learning, AdamWConfig(), strategy)], 1.0, strategy)
        for number, update in zip(range(1, count + 1), updates, strict=False):
            optimizer.zero_grad()
            total = linear.weight.new_zeros(())
            for batch in update.batches:
                sides = (batch.source, batch.target_input, batch.target_output)
                sums = changed.loss(*sides, *smoothing, languages=batch.languages)
                loss = sums.smoothed / update.target_tokens
                torch.autograd.backward(loss)
                total += loss.detach()
            optimizer.step(schedule(number), total)
            losses.append(total.item())
    return losses


@contextmanager
def _only(model: TranslationModel, learning: nn.Module) -> Iterator[None]:
    """Let gradients reach one part of a model alone."""
    before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.requires_grad_(False)
    learning.requires_grad_(True)
    try:
        yield
    finally:
        for parameter, needed in before:
            parameter.requires_grad_(needed)
            parameter.grad = None


def _passed(state: Sequence[Tensor], cell: Cell) -> Tensor:
    return torch.cat(tuple(state), -1) if cell == "map" else state[0]
