"""Layer by layer: what a model loses when a layer becomes a linear map (2020 preprint, Tables 6 and 7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from torch import nn

from deepwire.errors import Tell, UsageError
from deepwire.lab.experiments.linearisation.linear_layer import Cell, has_cell, linearised, width
from deepwire.lab.experiments.linearisation.linear_map_fit import Fit, match, train_on_translation
from deepwire.lab.report.finding import Axis, BarChart, Column, Finding, Series, Table, provenance
from deepwire.lab.subject.measurement_cache import MeasurementCache
from deepwire.lab.subject.model_and_text import check_layer, present
from deepwire.lab.subject.scorer import Scorer
from deepwire.lab.subject.training_text import TrainingText
from deepwire.model.context import SIDES, Side
from deepwire.training.device_batches import DeviceUpdate

Reading = Literal["match", "translation"]
READINGS: tuple[Reading, Reading] = ("match", "translation")


@dataclass(frozen=True)
class LinearisationSettings:
    """What is measured, and how long is trained.

    Attributes:
        readings: Of the preprint's "trained to distil": fit the layer's output, or train by the loss.
        cell: What happens to a cell that passes between layers: goes past the layer, or is mapped too.
        updates: Updates of training text that are read: for the fit, and by the training.
        batch_tokens: Target tokens of an update.
        rate: First learning rate of the training.
        seed: Of the order of the text.
        sides: Encoder, decoder or both.
        layers: Layers of each side, from 1; None for all.
    """

    readings: tuple[Reading, ...] = READINGS
    cell: Cell = "carry"
    updates: int = 200
    batch_tokens: int = 4096
    rate: float = 1e-3
    seed: int = 1
    sides: tuple[Side, ...] = SIDES
    layers: tuple[int, ...] | None = None

    @property
    def shown(self) -> dict[str, str]:
        """What decides the numbers of a layer, by name."""
        values = asdict(self)
        return {name: str(values[name]) for name in ("cell", "updates", "batch_tokens", "rate", "seed")}

    def layers_of(self, scorer: Scorer, side: Side) -> list[int]:
        """The layers to replace, one at a time.

        Raises:
            UsageError: The stack has no such layer, or no cell to map.
        """
        width(scorer.model, side, self.cell)
        stack = scorer.model.stack(side)
        for layer in self.layers or ():
            check_layer(stack, side, layer)
        return list(self.layers or range(1, stack.depth + 1))


@dataclass(frozen=True)
class LayerScore:
    """BLEU with one layer linear.

    Attributes:
        explained: Share of the variance of the layer's output that the least-squares map explains.
        loss: Smoothed loss a target token at the end of the training, nats; nan for `match`.
    """

    side: Side
    layer: int
    reading: Reading
    bleu: float
    explained: float
    loss: float

    def change(self, whole: float) -> float:
        """Relative change of BLEU, in percent of that of the whole model."""
        return 100 * (self.bleu - whole) / whole if whole else math.nan


def layer_scores(
    scorer: Scorer,
    text: TrainingText,
    settings: LinearisationSettings,
    folder: Path,
    tell: Tell,
) -> tuple[float, list[LayerScore]]:
    """BLEU of the whole model, and with each layer linear.

    What is done lies in `folder`; a call with the same model, text and settings goes on from there.

    Raises:
        UsageError: There is no such layer, or no cell to map.
    """
    layers = {side: settings.layers_of(scorer, side) for side in present(scorer.model, settings.sides)}
    done = MeasurementCache(folder, _decisive(scorer, text, settings))
    whole = _remembered(done, "whole", lambda: {"bleu": scorer.bleu(scorer.model)})["bleu"]
    tell(f"whole model: BLEU {whole:.2f}")
    score_of: dict[tuple[Side, int, Reading], LayerScore] = {}
    for side in layers:
        wanted = [(layer, reading) for layer in layers[side] for reading in settings.readings]
        for layer, reading in wanted:
            record = done.get(_name(side, layer, reading))
            if record is not None:
                score_of[side, layer, reading] = _from_record(side, layer, reading, record)
        missing = [each for each in wanted if (side, *each) not in score_of]
        for score in _measure(scorer, text, settings, side, missing, tell):
            numbers = {"bleu": score.bleu, "explained": score.explained, "loss": score.loss}
            done.put(_name(side, score.layer, score.reading), _without_nan(numbers))
            score_of[side, score.layer, score.reading] = score
            change = f" ({score.change(whole):+.2f} %)" if whole else ""  # no share of nothing
            tell(f"{side} layer {score.layer}, {score.reading}: BLEU {score.bleu:.2f}{change}")
    return whole, [
        score_of[key] for key in sorted(score_of, key=lambda key: (SIDES.index(key[0]), key[1], key[2]))
    ]


def _measure(
    scorer: Scorer,
    text: TrainingText,
    settings: LinearisationSettings,
    side: Side,
    wanted: Sequence[tuple[int, Reading]],
    tell: Tell,
) -> Iterator[LayerScore]:
    """The missing scores of one side, as they are found."""
    if not wanted:
        return
    layers = sorted({layer for layer, _ in wanted})
    tell(f"{side}: fitting {len(layers)} maps on {settings.updates} updates")
    fits = match(scorer.model, side, layers, _updates(scorer, text, settings), settings.cell)
    for layer, reading in wanted:
        yield _layer(scorer, text, settings, side, layer, reading, fits[layer])


def _layer(
    scorer: Scorer,
    text: TrainingText,
    settings: LinearisationSettings,
    side: Side,
    layer: int,
    reading: Reading,
    fit: Fit,
) -> LayerScore:
    linear, loss = _copy(fit.linear), math.nan
    if reading == "translation":
        training = text.config.training
        losses = train_on_translation(
            scorer.model,
            side,
            layer,
            linear,
            _updates(scorer, text, settings),
            count=settings.updates,
            rate=settings.rate,
            smoothing=(training.label_smoothing, training.label_smoothing_form),
            cell=settings.cell,
        )
        tail = losses[-max(1, len(losses) // 10) :]
        loss = sum(tail) / len(tail)
    changed = linearised(scorer.model, side, layer, linear, settings.cell).eval()
    return LayerScore(side, layer, reading, scorer.bleu(changed), fit.explained, loss)


def _updates(scorer: Scorer, text: TrainingText, settings: LinearisationSettings) -> Iterator[DeviceUpdate]:
    stream = text.updates(scorer.loaded.device, batch_tokens=settings.batch_tokens, seed=settings.seed)
    return islice(stream, settings.updates)


def _copy(linear: nn.Linear) -> nn.Linear:
    copied = nn.Linear(linear.in_features, linear.out_features, device=linear.weight.device)
    copied.load_state_dict(linear.state_dict())
    return copied


def _decisive(scorer: Scorer, text: TrainingText, settings: LinearisationSettings) -> dict[str, str]:
    """Everything that decides a layer's numbers; which layers are looked at does not."""
    training = text.config.training
    return {
        "model": scorer.source.digest,
        "training text": text.prepared.digest,
        "label smoothing": f"{training.label_smoothing} ({training.label_smoothing_form})",
        **scorer.settings,
        **settings.shown,
    }


def _remembered(done: MeasurementCache, name: str, work: Callable[[], dict[str, float]]) -> dict[str, float]:
    record = done.get(name)
    if record is None:
        score = work()
        done.put(name, score)
        return score
    return {key: float(value) for key, value in record.items() if isinstance(value, int | float)}


def _name(side: Side, layer: int, reading: Reading) -> str:
    return f"{side}-{layer}-{reading}"


def _from_record(side: Side, layer: int, reading: Reading, record: dict[str, object]) -> LayerScore:
    values = {name: record.get(name) for name in ("bleu", "explained", "loss")}
    numbers = [float(value) if isinstance(value, int | float) else math.nan for value in values.values()]
    return LayerScore(side, layer, reading, *numbers)


def _without_nan(record: dict[str, float]) -> dict[str, object]:
    return {name: None if math.isnan(value) else value for name, value in record.items()}


_HOW: dict[Reading, str] = {
    "match": "fitted to the layer's output by least squares",
    "translation": "trained by the translation loss, from the least-squares map on",
}


def linearisation_finding(
    scorer: Scorer, settings: LinearisationSettings, whole: float, scores: Sequence[LayerScore]
) -> Finding:
    """The scores as tables and bars.

    Raises:
        UsageError: There are no scores.
    """
    if not scores:
        raise UsageError("no layer was replaced")
    table = Table(
        title="BLEU with one layer linear",
        columns=(
            Column(name="stack"),
            Column(name="layer"),
            Column(name="reading"),
            Column(name="BLEU", digits=2),
            Column(name="change", unit="%", digits=2),
            Column(name="explained variance", unit="%", digits=1),
            Column(name="training loss, smoothed", unit="nats/token", digits=3),
        ),
        rows=(
            ("whole model", None, None, whole, 0.0, None, None),
            *(
                (
                    score.side,
                    score.layer,
                    score.reading,
                    score.bleu,
                    score.change(whole),
                    100 * score.explained,
                    score.loss,
                )
                for score in scores
            ),
        ),
    )
    sides = [side for side in SIDES if any(score.side == side for score in scores)]
    return Finding(
        analysis="linearise",
        title=f"One layer at a time replaced by a linear map: {scorer.name}",
        measured=_measured(settings),
        tables=(table,),
        figures=tuple(
            _bars(side, whole, [score for score in scores if score.side == side]) for side in sides
        ),
        notes=_notes(scorer, settings),
        provenance=provenance(
            (scorer.source,), (scorer.pairs.description,), scorer.settings | settings.shown
        ),
    )


def _bars(side: Side, whole: float, scores: Sequence[LayerScore]) -> BarChart:
    layers = sorted({score.layer for score in scores})
    values = {(score.layer, score.reading): score.change(whole) for score in scores}
    readings = [reading for reading in READINGS if any(score.reading == reading for score in scores)]
    return BarChart(
        name=side,
        title=f"Change of BLEU with one linear {side} layer",
        caption=f"Of {whole:.2f} BLEU of the whole model; below zero is a loss. "
        + "; ".join(f"{reading}: {_HOW[reading]}" for reading in readings)
        + ".",
        x=Axis(label=f"{side} layer"),
        y=Axis(label="change of BLEU", unit="%"),
        categories=tuple(str(layer) for layer in layers),
        series=tuple(
            Series(name=reading, y=tuple(values.get((layer, reading)) for layer in layers))
            for reading in readings
        ),
    )


def _measured(settings: LinearisationSettings) -> str:
    readings = "; ".join(f"{reading}: {_HOW[reading]}" for reading in settings.readings)
    return (
        "A layer y = f(x) becomes y = W x + b, one layer at a time, and W and b are trained on the training "
        "set with everything else frozen and without dropout (2020 preprint of the depth-wise LSTM paper, "
        f"section 4). The preprint does not name the loss; readings here: {readings}. The linear layer sees "
        "one position only: it has no self-attention and, in the decoder, no cross-attention. The change is "
        "that of BLEU relative to the whole model."
    )


def _notes(scorer: Scorer, settings: LinearisationSettings) -> tuple[str, ...]:
    notes = [f"Each map saw {settings.updates} updates of about {settings.batch_tokens} target tokens."]
    if any(has_cell(scorer.model, side) for side in present(scorer.model, settings.sides)):
        notes.append(
            "The layers of this model pass on a cell beside their output. The map gives both, from both."
            if settings.cell == "map"
            else "The layers of this model pass on a cell beside their output. The map gives the output; the "
            "cell goes past the layer unchanged. The preprint does not say what it did; --cell map is the "
            "other choice."
        )
    return tuple(notes)
