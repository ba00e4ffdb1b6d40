"""The layers of a trained model: how much each changes, the loss without it, or with a linear map.

Similarity of the streams at different depths is the cosine of the angle between them, word by word. A layer
whose input and output are nearly the same does little (Men et al. 2024, ShortGPT: block influence). What it
is worth is seen when it is left out (Fan et al. 2020, LayerDrop). What it does beyond a linear map is seen
when y = f(x) becomes y = W x + b (Xu et al. 2020, Rewiring the Transformer with Depth-Wise LSTMs, 2020
preprint, section 4, Eq. 11 and 12): the map sees one position, so the layer loses its attention,
cross-attention included. How much depth is worth is seen in BLEU without the top layers, or with some groups
alone (Yang et al. 2022, GTrans, Table VI and Fig. 7). Nothing of the model is trained again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepwire.data.languages import Direction
from deepwire.errors import LogFn, UsageError
from deepwire.lab.finding import (
    BarChart,
    Cell,
    Figure,
    Finding,
    HeatMap,
    LineChart,
    Series,
    Table,
    provenance,
)
from deepwire.lab.signals import Signal, signal_values
from deepwire.lab.subject import (
    ReadText,
    Scorer,
    open_model,
    present,
    repeating,
    text_for,
    training_text,
)
from deepwire.model.connections.connection import Call, Connection, ConnectionWrapper, DepthState
from deepwire.model.context import Context
from deepwire.model.introspection import layer_names
from deepwire.model.layers import NoNorm
from deepwire.model.stack_spec import SIDES, Side
from deepwire.model.translation_model import TranslationModel
from deepwire.training.device import DeviceBatch


def analyse_similarity(
    model: str,
    source: Path | None = None,
    reference: Path | None = None,
    sentences: int | None = 500,
    device: str = "cpu",
    direction: Direction | None = None,
    *,
    sides: Sequence[Side] = SIDES,
    tell: LogFn = lambda _: None,
) -> Finding:
    """How alike the streams at different depths are, and the loss without each layer.

    For the text see `text_for`; `tell` hears what has been measured.

    Raises:
        ModelError, UsageError, DataError: There is no such model or text.
    """
    subject = open_model(model, device)
    inside = subject.loaded.model
    text = text_for(subject, source, reference, sentences, direction)
    alike = similarities(inside, text, sides)
    whole = loss_of(inside, text)
    tables, figures = list[Table](), list[HeatMap]()
    rounds = repeating(inside)
    notes = [f"Similarities are those of the first round: {rounds}."] if rounds else []
    for side in present(inside, sides):
        connection, reason = inside.config.stack(side).connection, _reads_below(inside, side)
        if connection.droppable() == "nothing":
            reason = f"{side}.connection {connection.type} needs every layer as it is set"
        losses = [] if reason else losses_without_layers(inside, side, text, tell)
        if reason:
            notes.append(f"No layer of the {side} is left out: {reason}.")
        tables.append(_similarity_table(side, alike[side], whole, losses))
        names, axis = layer_names(len(alike[side].layers), embedding=True), "output of layer; 0: embedding"
        figures.append(
            HeatMap(
                name=f"{side}-similarity",
                title=f"{side.capitalize()}: similarity of the streams at different depths",
                row_axis=axis,
                column_axis=axis,
                value="cosine",
                rows=names,
                columns=names,
                values=alike[side].depths.tolist(),
            )
        )
    return Finding(
        analysis="similarity",
        title=f"Similarity of depths of {model}",
        measured=f"The model reads the text{text.past} without dropout. Similarity: the cosine of the angle "
        "between two vectors of a word, as the mean over words; what a layer changes is 1 less that of its "
        "input and output. Loss: negative log-likelihood per target token. A layer that is left out passes "
        "on what it was given, and nothing is trained again.",
        tables=tables,
        figures=figures,
        notes=notes,
        provenance=provenance([subject.source], [text.description]),
    )


class Similarities(NamedTuple):
    """Mean cosines of the streams of one stack.

    `depths` are `[L + 1, L + 1]`, between the embedding and the outputs of all layers; `layers` `[L]`,
    between what enters a layer and what leaves it.
    """

    depths: Tensor
    layers: Tensor


@torch.inference_mode()
def similarities(
    model: TranslationModel, text: ReadText, sides: Sequence[Side] = SIDES
) -> Mapping[Side, Similarities]:
    """Let a model read a text and compare its streams at real tokens.

    Raises:
        UsageError: The layers of a side give vectors of another width than the embedding's.
    """
    depths: dict[Side, Tensor] = {}
    changes: dict[Side, Tensor] = {}
    words: dict[Side, int] = {}
    for batch in text.batches:
        values = signal_values(model, batch)
        for side in present(model, sides):
            layers = range(model.stack(side).depth)
            outputs = [values[Signal(side, "output", layer)] for layer in layers]
            embedding = values[Signal(side, "embedding")]
            if embedding.shape != outputs[0].shape:
                raise UsageError(
                    f"depths of the {side} cannot be compared: {side}.connection "
                    f"{model.config.stack(side).connection.type} widens the stream",
                    "choose the other stack with --side",
                )
            units = _units([embedding, *outputs])
            entering = _units([values[Signal(side, "enters", layer)] for layer in layers])
            depths[side] = depths.get(side, 0) + torch.einsum("ind,jnd->ij", units, units)
            changes[side] = changes.get(side, 0) + (entering * units[1:]).sum((1, 2))
            words[side] = words.get(side, 0) + units.size(1)
    return {side: Similarities(depths[side] / count, changes[side] / count) for side, count in words.items()}


def _units(streams: Sequence[Tensor]) -> Tensor:
    """`[k, n, d]`, each vector at length 1."""
    return functional.normalize(torch.stack(list(streams)).double(), dim=-1)


@torch.inference_mode()
def loss_of(model: TranslationModel, text: ReadText) -> float:
    """Negative log-likelihood per target token, nats."""
    total, tokens = 0.0, 0
    for batch in text.batches:
        sums = model.loss(batch.source, batch.target_input, batch.target_output, languages=batch.languages)
        total, tokens = total + float(sums.nll), tokens + int(sums.tokens)
    return total / tokens


def _reads_below(model: TranslationModel, side: Side) -> str:
    """Why layers are more than functions of the stream; nothing where they are no more."""
    mixer = model.config.stack(side).mixer
    return f"{side}.mixer {mixer.type} reads what the layers below made" if mixer.reads_below else ""


def losses_without_layers(
    model: TranslationModel, side: Side, text: ReadText, tell: LogFn = lambda _: None
) -> list[float]:
    """The loss of a model without layer 1, 2, ... of a stack alone."""
    stack = model.stack(side)
    losses = []
    for layer in range(stack.depth):
        losses.append(loss_of(model.with_stacks(**{side: stack.without([layer])}), text))
        tell(f"{side} without layer {layer + 1}: {losses[-1]:.3f} nats a token")
    return losses


def _similarity_table(side: Side, alike: Similarities, whole: float, losses: Sequence[float]) -> Table:
    columns = ["layer", "changes .3"]
    rows: list[tuple[Cell, ...]] = [
        (layer, 1 - similarity) for layer, similarity in enumerate(alike.layers.tolist(), 1)
    ]
    if losses:
        columns += ["loss without it [nats/token] .3", "more than whole [nats/token] .3"]
        rows = [(*row, loss, loss - whole) for row, loss in zip(rows, losses, strict=True)]
    title = f"{side.capitalize()}: what each layer changes, and is worth"
    return Table(title=title, columns=columns, rows=rows)


def analyse_linearity(
    model: str,
    source: Path | None = None,
    reference: Path | None = None,
    sentences: int | None = 500,
    device: str = "cpu",
    direction: Direction | None = None,
    *,
    sides: Sequence[Side] = SIDES,
    updates: int = 200,
    tokens: int = 4096,
    scorer: Scorer | None = None,
    tell: LogFn = lambda _: None,
) -> Finding:
    """The loss with one layer at a time replaced by the linear map that is nearest to it.

    Args:
        model: RUN or RUN@checkpoint: maps are fitted on its training text.
        source, reference, sentences, direction: The text of the loss; see `text_for`.
        updates, tokens: Updates of training text that the maps are fitted on, and target tokens of each.
        scorer: The same model and text, opened in float32: BLEU is counted too.

    Raises:
        ModelError, UsageError, DataError: There is no such model or text, or no layer can be replaced.
    """
    subject = open_model(model, device) if scorer is None else scorer.subject
    text = text_for(subject, source, reference, sentences, direction)
    inside = subject.loaded.model
    sides = present(inside, sides)
    training, place = training_text(model, subject.loaded.vocabularies), next(inside.parameters()).device
    stream = training.updates(place, batch_tokens=tokens, seed=training.config.seed)
    fits = nearest_maps(inside, sides, chain.from_iterable(each.batches for each in islice(stream, updates)))
    whole = loss_of(inside, text)
    columns = ["stack", "layer", "loss [nats/token] .3", "more than whole [nats/token] .3"]
    columns += ["explained variance [%] .1"]
    full = scorer.bleu(inside) if scorer else 0.0
    of_bleu = ["BLEU .2", "change of BLEU [%] .2"] if scorer else []
    rows: list[tuple[Cell, ...]] = [("whole model", None, whole, 0.0, None, *((full, 0.0) if scorer else ()))]
    for (side, layer), fit in fits.items():
        changed = linearised(inside, side, layer, fit.linear)
        loss = loss_of(changed, text)
        row: tuple[Cell, ...] = (side, layer, loss, loss - whole, 100 * fit.explained)
        said = f"{side} layer {layer} linear: {loss:.3f} nats a token"
        if scorer:
            score = scorer.bleu(changed)
            row = (*row, score, 100 * (score - full) / full if full else None)
            said += f", BLEU {score:.2f}"
        rows.append(row)
        tell(said)
    return Finding(
        analysis="linearise",
        title=f"One layer at a time replaced by a linear map: {model}",
        measured="A layer y = f(x) becomes y = W x + b, one layer at a time: W and b are nearest to the "
        f"layer's output by least squares over {updates} updates of about {tokens} target tokens of the "
        "training text, and nothing else changes (2020 preprint of the depth-wise LSTM paper, section 4). "
        "The map sees one position only: no self-attention and, in the decoder, no cross-attention. A cell "
        "beside the stream goes past the layer unchanged. Loss: negative log-likelihood per target token; "
        f"the model reads the text{text.past} without dropout.",
        tables=[Table(title="One layer linear", columns=[*columns, *of_bleu], rows=rows)],
        figures=[
            BarChart(
                name=side,
                title=f"More loss with one linear {side} layer",
                x=f"{side} layer",
                y="more than whole [nats/token]",
                categories=[str(row[1]) for row in rows if row[0] == side],
                series=[Series(name="more loss", y=[row[3] for row in rows if row[0] == side])],
            )
            for side in sides
        ],
        provenance=provenance([subject.source], [text.description]),
    )


class Fit(NamedTuple):
    """A fitted map, and the share of the variance of the output that it explains; nan where that is none."""

    linear: nn.Linear
    explained: float


class LeastSquares:
    """The map W x + b that is nearest to y, for pairs that come in batches; only sums are kept."""

    def __init__(self) -> None:
        self._gram: Tensor | float = 0.0
        self._cross: Tensor | float = 0.0
        self._squares: Tensor | float = 0.0

    def add(self, x: Tensor, y: Tensor) -> None:
        """Take in pairs, `[N, inputs]` and `[N, outputs]`."""
        x, y = x.double(), y.double()
        x = torch.cat((x, x.new_ones(len(x), 1)), -1)
        self._gram = self._gram + x.t() @ x
        self._cross = self._cross + x.t() @ y
        self._squares = self._squares + y.square().sum(0)

    def solve(self) -> Fit:
        """The map with the least sum of squared errors; of several, the one with the smallest weights."""
        gram, cross, squares = map(torch.as_tensor, (self._gram, self._cross, self._squares))
        solution = torch.linalg.pinv(gram, hermitian=True) @ cross
        linear = nn.Linear(len(solution) - 1, solution.size(1), device=solution.device)
        with torch.no_grad():
            linear.weight.copy_(solution[:-1].t())
            linear.bias.copy_(solution[-1])
        count = gram[-1, -1]
        spread = (squares - cross[-1].square() / count).sum()
        wrong = (squares - 2 * (solution * cross).sum(0)).sum() + (solution * (gram @ solution)).sum()
        return Fit(linear, float(1 - wrong / spread) if spread > 0 else float("nan"))


@torch.no_grad()
def nearest_maps(
    model: TranslationModel, sides: Sequence[Side], batches: Iterable[DeviceBatch]
) -> dict[tuple[Side, int], Fit]:
    """For each layer (from 1) the map nearest to its output by mean squared error, exactly, in one pass.

    Raises:
        UsageError: Layers above read what a layer made inside, or layers run several times.
    """
    for side in sides:
        if reason := _reads_below(model, side) or repeating(model):
            raise UsageError(f"no layer of the {side} can be replaced: {reason}")
    sums = {(side, layer): LeastSquares() for side in sides for layer in range(model.stack(side).depth)}
    for batch in batches:
        values = signal_values(model, batch)
        for (side, layer), least in sums.items():
            least.add(values[Signal(side, "enters", layer)], values[Signal(side, "output", layer)])
    return {(side, layer + 1): least.solve() for (side, layer), least in sums.items()}


class _OneLayerLinear(ConnectionWrapper):
    """A connection one of whose layers is a single call, which reads and writes the stream x `[B, T, d]`.

    Whatever else passes from layer to layer (the cell of a depth-wise LSTM) goes past the layer unchanged.
    """

    def __init__(self, inner: Connection, layer: int) -> None:
        places = [index for index, call in enumerate(inner.calls) if call.layer == layer]
        self.place, self.replaced = places[0], len(places)
        linear = Call("feed_forward", layer, closes=True)
        after = inner.calls[self.place + self.replaced :]
        super().__init__(inner, (*inner.calls[: self.place], linear, *after))

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        if index == self.place:
            return self.inner.stream(state)
        return self.inner.read(state, self._before(index), context)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        if index == self.place:
            return self.inner.with_stream(state, output)
        return self.inner.write(state, self._before(index), read, output, context)

    def _before(self, index: int) -> int:
        """The number that a call had in the connection as it was."""
        return index if index < self.place else index + self.replaced - 1


class _LinearLayer(nn.Module):
    """A linear map in the place of a feed-forward network, the same for all target languages."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor, _context: Context) -> Tensor:
        mapped: Tensor = self.linear(x)
        return mapped


def linearised(model: TranslationModel, side: Side, layer: int, linear: nn.Linear) -> TranslationModel:
    """The model with one layer (from 1) replaced by `linear`; all other parameters are shared with `model`.

    It translates, scores and decodes step by step as any model does.
    """
    stack = model.stack(side)
    modules: list[nn.Module] = list(stack.feed_forwards) or [NoNorm() for _ in range(stack.depth)]
    modules[layer - 1] = _LinearLayer(linear)
    connection = _OneLayerLinear(stack.connection, layer - 1)
    changed = stack.with_parts(connection=connection, feed_forwards=modules)
    return model.with_stacks(**{side: changed}).eval()


def with_layers(model: TranslationModel, side: Side, layers: int) -> TranslationModel:
    """The model whose encoder or decoder ends after its lowest `layers` layers; parameters are shared.

    The final norm stays, and a fusion of several layers takes those that are left.

    Raises:
        UsageError: The fusion needs all of them, or they run in rounds.
    """
    stack = model.stack(side)
    if layers == stack.depth:
        return model
    if stack.repeats:  # the coda would run in their place
        raise UsageError(
            f"layers of the {side} cannot be left out: its middle layers run in rounds (recurrence), and "
            "decoding.rounds says how many"
        )
    try:
        fusion = stack.fusion.lowest(layers)
    except ValueError as error:
        raise UsageError(f"layers of the {side} cannot be left out: {error}") from None
    return model.with_stacks(**{side: stack.with_parts(fusion=fusion)})


def _layer_scores(scorer: Scorer, side: Side, tell: LogFn) -> list[float]:
    """BLEU with 1, 2, ... all layers of a stack, the other stack whole."""
    depth = scorer.model.stack(side).depth
    scores = []
    for layers in range(1, depth + 1):
        scores.append(scorer.bleu(with_layers(scorer.model, side, layers)))
        tell(f"{side} with {layers} of {depth} layers: BLEU {scores[-1]:.2f}")
    return scores


def _group_scores(scorer: Scorer, tell: LogFn) -> list[tuple[str, float, float]]:
    """Groups of the decoder (``4`` or ``3:6``), their weight in the mixture of all, and BLEU with them alone.

    Every single group, and every range that ends with the last one; empty where the decoder does not predict
    with a mixture of groups.
    """
    log_weights = scorer.model.decoder.fusion.log_weights(scorer.languages)
    if log_weights is None:
        return []
    weights: list[float] = log_weights.exp().tolist()
    groups = len(weights)
    ranges = [(group, group) for group in range(1, groups + 1)]
    ranges += [(first, groups) for first in range(1, groups)]
    scores = []
    for first, last in ranges:
        bleu = scorer.bleu(scorer.model, groups=f"{first}:{last}")
        name = str(first) if first == last else f"{first}:{last}"
        scores.append((name, sum(weights[first - 1 : last]), bleu))
        tell(f"decoder groups {name}: BLEU {bleu:.2f}")
    return scores


def fewer_layers_finding(scorer: Scorer, sides: Sequence[Side], tell: LogFn) -> Finding:
    """BLEU without the top layers of each stack, and with some groups of the decoder alone.

    Raises:
        UsageError: Nothing can be left out of this model.
    """
    scores: dict[Side, list[float]] = {}
    notes = []
    sides = present(scorer.model, sides)
    for side in sides:
        try:
            scores[side] = _layer_scores(scorer, side, tell)
        except UsageError as error:
            notes.append(f"{error.message}.")
    groups = _group_scores(scorer, tell) if "decoder" in sides else []
    if not scores and not groups:
        raise UsageError(f"{scorer.name}: {' '.join(notes)}")
    tables: list[Table] = []
    figures: list[Figure] = []
    if scores:
        title = "BLEU with the lowest layers of one stack"
        rows = [
            (side, layers, len(of_side) - layers, bleu, bleu - of_side[-1])
            for side, of_side in scores.items()
            for layers, bleu in enumerate(of_side, 1)
        ]
        columns = ["stack", "layers", "left out", "BLEU .2", "change [BLEU] .2"]
        tables.append(Table(title=title, columns=columns, rows=rows))
        lines = [
            Series(name=f"{side} (of {len(of_side)})", x=range(1, len(of_side) + 1), y=of_side)
            for side, of_side in scores.items()
        ]
        figures.append(LineChart(name="layers", title=title, x="layers left", y="BLEU", series=lines))
    if groups:
        title = "BLEU with some groups of the decoder"
        tables.append(Table(title=title, columns=["groups", "weight of all .3", "BLEU .2"], rows=groups))
        bars = [Series(name="BLEU", y=[bleu for _, _, bleu in groups])]
        names = [name for name, _, _ in groups]
        figures.append(
            BarChart(name="groups", title=title, x="groups", y="BLEU", categories=names, series=bars)
        )
    return Finding(
        analysis="depth",
        title=f"Fewer layers of a trained model: {scorer.name}",
        measured=(
            "Layers above the number given are left out of the trained model, one stack at a time, and "
            "nothing is trained again; the final norm stays, and a fusion of several layers takes those that "
            "are left. Groups: the decoder predicts with one group alone, or with a range that ends with the "
            "last one, their weights scaled to sum to 1 (Yang et al. 2022, Table VI)."
        ),
        tables=tables,
        figures=figures,
        notes=notes,
        provenance=provenance((scorer.subject.source,), (scorer.pairs.description,), scorer.settings),
    )
