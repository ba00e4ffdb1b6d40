"""BLEU against depth over a set of trained runs (Wang et al. 2019, DLCL, Fig. 3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from deepwire.errors import LogFn
from deepwire.lab.compare.run_comparison import flat
from deepwire.lab.report.finding import Finding, LineChart, Series, Table, provenance
from deepwire.lab.subject.scorer import Scorer
from deepwire.model.config import ModelConfig, StackConfig
from deepwire.model.stack_spec import Side

SOCKETS = ("mixer", "connection", "aggregation", "fusion")


@dataclass(frozen=True)
class DepthOfRun:
    """One run: what its layers are made of, how many it has, and its BLEU."""

    model: str
    kind: str
    encoder: int
    decoder: int
    bleu: float

    def layers(self, side: Side) -> int:
        """Layers of one stack."""
        return self.encoder if side == "encoder" else self.decoder


def kind_of(config: ModelConfig) -> str:
    """The parts of the layers of a model, in few words: `pre_norm dlcl`, `post_norm | mhplstm post_norm`.

    The ordinary choices self_attention, last and top go without saying; encoder and decoder are told apart
    where they differ.
    """
    sides = dict.fromkeys(_sockets(config.stack(side)) for side in config.sides)
    return " | ".join(["decoder only"] * config.is_decoder_only + list(sides))


def _sockets(stack: StackConfig) -> str:
    types = [str(getattr(stack, socket).type) for socket in SOCKETS]
    return " ".join(each for each in types if each not in {"self_attention", "last", "top"})


def kinds_of(configs: Sequence[ModelConfig]) -> list[str]:
    """`kind_of` each model; where two of one kind differ in more than depth, with what they differ in."""
    kinds = [kind_of(config) for config in configs]
    settings = [_but_for_depth(config) for config in configs]
    names = []
    for kind, model_settings in zip(kinds, settings, strict=True):
        keys = {
            key
            for name, other in zip(kinds, settings, strict=True)
            for key in model_settings.keys() | other.keys()
            if name == kind and model_settings.get(key) != other.get(key)
        }
        said = ", ".join(f"{key} {model_settings.get(key, 'not set')}" for key in sorted(keys))
        names.append(f"{kind} ({said})" if said else kind)
    return names


def _but_for_depth(config: ModelConfig) -> dict[str, str]:
    settings = config.model_dump(mode="json")
    for side in ("encoder", "decoder"):
        del settings[side]["layers"]
    return flat(settings)


def curves(runs: Iterable[DepthOfRun], side: Side) -> list[Series]:
    """The runs as curves over the depth of one stack; several runs of one depth (seeds) are one point.

    One curve for each depth of the other stack; one in all where both stacks are deeper from run to run.
    """
    other: Side = "decoder" if side == "encoder" else "encoder"
    bleu_of_kinds: dict[str, dict[tuple[int, int], list[float]]] = {}
    for run in runs:
        depths = run.layers(other), run.layers(side)
        bleu_of_kinds.setdefault(run.kind, {}).setdefault(depths, []).append(run.bleu)
    return [
        curve for kind, bleu in sorted(bleu_of_kinds.items()) for curve in _curves_of_kind(kind, bleu, other)
    ]


def _curves_of_kind(kind: str, bleu: dict[tuple[int, int], list[float]], other: Side) -> list[Series]:
    """`bleu` goes by the depth of the other stack and that of this one."""
    depths = sorted(bleu)
    together = len(depths) > 1 and all(
        low[0] < high[0] and low[1] < high[1] for low, high in pairwise(depths)
    )
    lines: dict[str, dict[int, list[float]]] = {}
    for layers, own_layers in depths:
        others = f"{depths[0][0]} to {depths[-1][0]}" if together else layers
        name = f"{kind}, {others} {other} layers" if layers else kind
        lines.setdefault(name, {})[own_layers] = bleu[layers, own_layers]
    return [
        Series(
            name=name,
            x=list(points),
            y=[sum(scores) / len(scores) for scores in points.values()],
            low=[min(scores) for scores in points.values()],
            high=[max(scores) for scores in points.values()],
        )
        for name, points in lines.items()
    ]


def varying_side(runs: Sequence[DepthOfRun]) -> Side:
    """The stack whose depth differs between the runs; the encoder where both do or none does.

    Where no run has an encoder it is the decoder.
    """
    encoders, decoders = {run.encoder for run in runs}, {run.decoder for run in runs}
    return "decoder" if encoders == {0} or (len(decoders) > 1 and len(encoders) == 1) else "encoder"


def depth_of_runs_finding(scorers: Iterable[Scorer], tell: LogFn) -> Finding:
    """BLEU of models on one text against depth, one line for each kind of layers (Wang et al. 2019, Fig. 3).

    Scorers may be made one after the other, so that only one has to fit into memory.
    """
    configs, scores, sources, text, settings = [], [], [], "", {}
    for scorer in scorers:
        bleu = scorer.bleu(scorer.model)
        tell(f"{scorer.name}: BLEU {bleu:.2f}")
        configs.append(scorer.model.config)
        scores.append(bleu)
        sources.append(scorer.source)
        text, settings = scorer.pairs.description, scorer.settings
    runs = [
        DepthOfRun(
            source.name,
            kind,
            0 if config.is_decoder_only else config.encoder.layers,
            config.decoder.layers,
            bleu,
        )
        for source, kind, config, bleu in zip(sources, kinds_of(configs), configs, scores, strict=True)
    ]
    side = varying_side(runs)
    title = f"BLEU against {side} depth"
    return Finding(
        analysis="depth-of-runs",
        title="BLEU against depth over a set of runs",
        measured=(
            "Every run is one model, trained at its depth. Runs whose layers are made of the same parts are "
            "one line; of several runs with one depth, such as seeds, the mean is drawn, with the range "
            "from the least to the greatest."
        ),
        tables=[
            Table(
                title="The runs",
                columns=["run", "layers made of", "encoder layers", "decoder layers", "BLEU .2"],
                rows=[(run.model, run.kind, run.encoder, run.decoder, run.bleu) for run in runs],
            )
        ],
        figures=[
            LineChart(name="runs", title=title, x=f"{side} layers", y="BLEU", series=curves(runs, side))
        ],
        provenance=provenance(sources, (text,), settings),
    )
