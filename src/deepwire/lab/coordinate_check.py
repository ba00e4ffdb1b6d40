"""Coordinate check: whether signals change by as much in wide and deep models as in small ones.

Yang et al. 2022 (Tensor Programs V, appendix D.1); Dey et al. 2025 (CompleteP) for the depth. Models of
several widths or depths take a few updates. With settings that carry over, what each layer gives changes by
as much in all of them; where the change grows with the width, a wider model needs a smaller learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import Literal

import torch
from pydantic import ValidationError
from torch import Tensor

from deepwire.config.choice import TRUSTED
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import LogFn, UsageError
from deepwire.lab.internals.signal_sizes import Signal, signal_values
from deepwire.lab.report.finding import Axis, Finding, LineChart, Series, Table, provenance
from deepwire.lab.subject.training_text import TrainingText, UntrainedRun
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.model.update_scales import update_scales
from deepwire.ops.process import own_random_numbers, seed_random_numbers
from deepwire.training.device_batches import DeviceUpdate
from deepwire.training.freezing import with_rate_factors
from deepwire.training.optimizers.optimizer import make_optimizer
from deepwire.training.parallel_strategy import ParallelStrategy
from deepwire.training.schedule import rates_of

Dimension = Literal["width", "depth"]
Sizes = Mapping[str, float]
_MAX_UPDATES_OF_A_SCHEDULE = 100_000


@dataclass(frozen=True)
class CoordinateCheck:
    """The sizes to compare, and how long to train.

    Attributes:
        widths, depths: Values of d_model, and of the layers of both stacks; at least two of one of them.
        updates: Updates of each model.
        tokens: Target tokens of an update.
        rate: Learning rate of all updates; None: the highest of the run's schedule.
        seeds: Models of each size; their numbers are averaged.
    """

    widths: Sequence[int] = ()
    depths: Sequence[int] = ()
    updates: int = 10
    tokens: int = 1024
    rate: float | None = None
    seeds: int = 1

    def __post_init__(self) -> None:
        for option, values, such_as in (
            ("--widths", self.widths, "32,64,128"),
            ("--depths", self.depths, "2,4,8"),
        ):
            if len(values) == 1 or len({*values}) < len(values) or any(value < 1 for value in values):
                written = ",".join(map(str, values))
                raise UsageError(
                    f"{option}: {written} are not several different sizes above 0",
                    f"write {option} {such_as}",
                )
        if not self.widths and not self.depths:
            raise UsageError("neither widths nor depths to compare", "write --widths 32,64,128")


@dataclass(frozen=True)
class Measured:
    """Sizes by place: of the signals after the updates, and of their change since the beginning (rms)."""

    size: Sizes
    change: Sizes


def coordinate_check(run: UntrainedRun, check: CoordinateCheck, device: torch.device, tell: LogFn) -> Finding:
    """Train models of several sizes for a few updates on the run's text, and compare their signals.

    `tell` hears about each model.

    Raises:
        UsageError: A size does not fit the model.
    """
    rate = check.rate or _highest_rate(run)
    dimensions: dict[Dimension, Sequence[int]] = {"width": check.widths, "depth": check.depths}
    sized = {
        dimension: {size: _resized(run.text.config.model, dimension, size) for size in sizes}
        for dimension, sizes in dimensions.items()
        if sizes
    }
    tables: list[Table] = []
    figures: list[LineChart] = []
    for dimension, configs in sized.items():
        measured = {}
        for size, config in configs.items():
            tell(f"{dimension} {size}: {check.updates} updates")
            measured[size] = _averaged(run, config, check, rate, device, by_layer=dimension == "width")
        for quantity in ("change", "size"):
            sizes = {size: getattr(each, quantity) for size, each in measured.items()}
            title = f"{quantity.capitalize()} of signals by {dimension}, rms"
            tables.append(_table(title, dimension, sizes))
            figures.append(_figure(title, f"{quantity}-by-{dimension}", dimension, sizes))
    return Finding(
        analysis="coordinate-check",
        title=f"Coordinate check of {run.description}",
        measured=f"Each model takes {check.updates} updates of about {check.tokens:,} target tokens at the "
        f"constant learning rate {rate:.3g}. Before and after, it reads one batch without dropout: the size "
        "is the root of the mean square (rms) of what each place gives after the updates, the change that of "
        "the difference. Growth is the slope of its logarithm over the logarithm of the width or depth.",
        tables=tables,
        figures=figures,
        notes=(
            "Where settings carry over, changes have a growth of about 0 (or below, where sizes fall at the "
            "start); 1 means that twice the width changes by twice as much.",
            "layer_drop, freeze and guided_alignment have no part in these updates.",
        ),
        provenance=provenance(
            data=[f"training text, {len(run.text.prepared.train):,} {run.text.unit}"],
            settings={"seeds": str(check.seeds), "rate": f"{rate:.3g}", "updates": str(check.updates)},
        ),
    )


def _highest_rate(run: UntrainedRun) -> float:
    config = run.text.config
    last = min(config.training.max_updates or _MAX_UPDATES_OF_A_SCHEDULE, _MAX_UPDATES_OF_A_SCHEDULE)
    training = config.training
    schedule = rates_of(training.schedule, d_model=config.model.base_width, max_updates=training.max_updates)
    return max(schedule(update) for update in range(1, last + 1))


def _resized(config: ModelConfig, dimension: Dimension, size: int) -> ModelConfig:
    """The model with another width, heads as wide as before where that is possible, or another depth.

    Raises:
        UsageError: The model cannot have this size.
    """
    settings = config.model_dump()
    if dimension == "depth":
        for side in config.sides:
            settings[side]["layers"] = size
    else:
        widths = config.d_model, config.heads, config.feed_forward
        if any(config.size(side) != widths for side in config.sides):
            raise UsageError("--widths: encoder and decoder have widths of their own", "leave their size out")
        wanted = max(1, size * config.heads // config.d_model)
        settings["d_model"] = size
        settings["heads"] = next(heads for heads in range(wanted, 0, -1) if size % heads == 0)
        settings["feed_forward"] = max(2, 2 * round(config.feed_forward * size / config.d_model / 2))
    try:
        return ModelConfig.model_validate(settings, context=TRUSTED)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"--{dimension}s: {size} does not fit this model: {reason}") from None


def _averaged(
    run: UntrainedRun,
    config: ModelConfig,
    check: CoordinateCheck,
    rate: float,
    device: torch.device,
    *,
    by_layer: bool,
) -> Measured:
    """The sizes of models of one size, averaged over seeds."""
    first = run.text.config.seed
    each = []
    for seed in range(first, first + check.seeds):
        model = run.model(seed, device, config)
        updates = run.text.updates(device, batch_tokens=check.tokens, seed=first)
        made = list(islice(updates, check.updates))
        probe = made[0].batches[0]
        before = _by_place(signal_values(model, probe), by_layer)
        with own_random_numbers(device):
            seed_random_numbers(seed, device)
            _train(model, made, run.text, rate)
        after = _by_place(signal_values(model, probe), by_layer)
        each.append(
            Measured(
                {place: _rms(value) for place, value in after.items()},
                {place: _rms(value - before[place]) for place, value in after.items()},
            )
        )
    return Measured(
        _mean([measured.size for measured in each]), _mean([measured.change for measured in each])
    )


def _train(model: TranslationModel, updates: Sequence[DeviceUpdate], text: TrainingText, rate: float) -> None:
    """Take updates as training does, in float32 and at one rate, but with all layers and parameters."""
    config = text.config.training
    perturbation = config.perturbation(text.prepared.vocabularies)
    scales = with_rate_factors(update_scales(model), model, config.rate_factors)
    strategy = ParallelStrategy(model, ProcessGroup())
    optimizer = make_optimizer(model, config.optimizer, config.clip_norm, strategy, scales=scales)
    smoothing = config.label_smoothing, config.label_smoothing_form
    model.train()
    for number, update in enumerate(updates, 1):
        model.begin_update(number)
        optimizer.zero_grad()
        total = torch.zeros((), device=updates[0].batches[0].source.device)
        for batch in update.batches:
            sides = (batch.source, batch.target_input, batch.target_output)
            sums = model.loss(
                *sides, *smoothing, config.r_drop, languages=batch.languages, perturbation=perturbation
            )
            torch.autograd.backward(sums.smoothed / update.target_tokens)
            total += sums.smoothed.detach()
        optimizer.step(rate, total)


def _by_place(values: Mapping[Signal, Tensor], by_layer: bool) -> dict[str, Tensor]:
    """Embeddings, layers, results and logits by name; of the layers all, or lowest, middle and top one."""
    places: dict[str, Tensor] = {}
    for side in dict.fromkeys(signal.side for signal in values):
        places[f"{side} embedding"] = values[Signal(side, "embedding")]
        layers = [signal for signal in values if (signal.side, signal.kind) == (side, "output")]
        if by_layer:
            named = {str(signal.number + 1): signal for signal in layers}
        else:
            named = {"lowest": layers[0], "middle": layers[len(layers) // 2], "top": layers[-1]}
        places |= {f"{side} layer {name}": values[signal] for name, signal in named.items()}
        places[f"{side} result"] = values[Signal(side, "results")]
    return {**places, "logits": values[Signal("decoder", "logits")]}


def _rms(value: Tensor) -> float:
    return float(value.double().square().mean().sqrt())


def _mean(each: Sequence[Sizes]) -> Sizes:
    return {place: fmean(sizes[place] for sizes in each) for place in each[0]}


def growth(sizes: Mapping[int, float]) -> float | None:
    """The slope of log(value) over log(size) by least squares; None where a value is 0 or not finite."""
    if not all(value > 0 and math.isfinite(value) for value in sizes.values()):
        return None
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in sizes.values()]
    mean_x, mean_y = fmean(x), fmean(y)
    products = sum((x_value - mean_x) * (y_value - mean_y) for x_value, y_value in zip(x, y, strict=True))
    return products / sum((x_value - mean_x) ** 2 for x_value in x)


def _table(title: str, dimension: Dimension, measured: Mapping[int, Sizes]) -> Table:
    return Table(
        title=title,
        columns=["place", *(f"{dimension} {size}" for size in measured), "growth .2"],
        rows=[
            (place, *at.values(), growth(at))
            for place in next(iter(measured.values()))
            for at in [{size: sizes[place] for size, sizes in measured.items()}]
        ],
    )


def _figure(title: str, name: str, dimension: Dimension, measured: Mapping[int, Sizes]) -> LineChart:
    label = "width (d_model)" if dimension == "width" else "layers of each stack"
    return LineChart(
        name=name,
        title=title,
        x=Axis(label=label, log=True),
        y=Axis(label="rms", log=True),
        series=[
            Series(name=place, x=list(measured), y=[sizes[place] or None for sizes in measured.values()])
            for place in next(iter(measured.values()))
        ],
        ordered=True,
    )
