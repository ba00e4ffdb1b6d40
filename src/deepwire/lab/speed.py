"""Speed and memory of training and decoding against batch, beam, length and depth.

Sentences are made of random subwords, all of one length, and a translation has exactly as many words as its
source: so every model does the same work, trained or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_loading import number_formats, pack_weights
from deepwire.decoding.search import Batch, generate
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import LogFn, UsageError
from deepwire.lab.finding import Finding, LineChart, ModelSource, Series, Table, provenance
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.packed_linear import Packing
from deepwire.training.config import TrainingConfig
from deepwire.training.device import DeviceBatch, PrecisionPolicy, describe
from deepwire.training.optimizers.optimizer import make_optimizer
from deepwire.training.parallel_strategy import ParallelStrategy

Mode = Literal["training", "decoding"]
Axis = Literal["batch", "beam", "length", "depth"]
AXES: Mapping[Mode, tuple[Axis, ...]] = {
    "training": ("batch", "length", "depth"),
    "decoding": ("batch", "beam", "length", "depth"),
}
_FIRST_WORD = 4
_SEED = 1


def _peak_memory(work: Callable[[], object], device: torch.device) -> float | None:
    """Do `work`; the peak of its GPU memory in MiB, less what was in use before. None on a CPU."""
    if device.type != "cuda":
        work()
        return None
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


@dataclass(frozen=True)
class Workload:
    """The work that is done at once.

    Attributes:
        batch: Sentences.
        beam: Hypotheses of each; decoding only.
        length: Subwords of every sentence, on both sides, the end symbol not counted.
        depth: Layers of both stacks; None leaves them as they are.
    """

    batch: int = 32
    beam: int = 4
    length: int = 20
    depth: int | None = None


@dataclass(frozen=True)
class MeasuredArchitecture:
    """A model to measure, by its architecture: what speed depends on.

    `languages` are target languages, where the model has parameters of each; 0 otherwise.
    """

    name: str
    config: ModelConfig
    source_vocabulary: int
    target_vocabulary: int
    languages: int = 0

    def build(self, depth: int | None, device: torch.device) -> TranslationModel:
        """The model with random weights; with `depth` layers in both stacks, where given.

        Raises:
            UsageError: It cannot have this depth.
        """
        config = self.config
        if depth is not None:
            values = config.model_dump()
            values["encoder"]["layers"] = values["decoder"]["layers"] = depth
            try:
                config = ModelConfig.model_validate(values)
            except ValueError as error:
                text = " ".join(str(error).split())
                raise UsageError(f"{self.name} cannot have {depth} layers: {text[:200]}") from None
        torch.manual_seed(_SEED)
        sizes = self.source_vocabulary, self.target_vocabulary
        return build_model(config, *sizes, languages=self.languages).to(device)


class Speed(NamedTuple):
    """The measured speed and memory, the best of the rounds: a row of the table.

    Attributes:
        subject: Name of the architecture.
        value: Where it stands on the axis.
        sentences, tokens: A second; tokens are target subwords with end symbols.
        memory: MiB at the peak on top of weights (and optimizer); None on a CPU.
    """

    subject: str
    value: int
    sentences: float
    tokens: float
    memory: float | None


def sweep(
    subjects: Sequence[MeasuredArchitecture],
    mode: Mode,
    axis: Axis,
    values: Sequence[int],
    base: Workload,
    *,
    rounds: int,
    device: torch.device,
    tell: LogFn,
    precision: str = "auto",
) -> list[Speed]:
    """Measure all subjects at every value of one axis, the others as in `base`.

    Rounds go over the subjects in turn, so that a busy machine slows all of them alike. Training is in the
    number format that ``training.precision: auto`` chooses, decoding in `precision`.

    Raises:
        UsageError: A subject cannot have a depth, or there is no such precision.
    """
    speeds = []
    policy, formats = PrecisionPolicy.choose("auto", device), number_formats(device, precision)
    for value in values:
        workload = replace(base, **{axis: value})
        works = []
        for subject in subjects:
            batch = _random_batch(workload, subject, device)
            model = subject.build(workload.depth, device)
            if mode == "training":
                works.append(_training(model, batch, policy))
            else:
                works.append(_decoding(model, batch.source, workload, formats))
        for work in works:
            work()  # what happens once does not count
        memory = [_peak_memory(work, device) for work in works]
        seconds = [float("inf")] * len(works)
        for _ in range(rounds):
            for place, work in enumerate(works):
                begun = time.perf_counter()
                work()
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                seconds[place] = min(seconds[place], time.perf_counter() - begun)
        for subject, took, peak in zip(subjects, seconds, memory, strict=True):
            sentences = workload.batch / took
            speeds.append(Speed(subject.name, value, sentences, sentences * (workload.length + 1), peak))
            tell(f"{subject.name}: {mode}, {axis} {value}: {speeds[-1].tokens:,.0f} target tokens/s")
    return speeds


def _random_batch(workload: Workload, subject: MeasuredArchitecture, device: torch.device) -> DeviceBatch:
    """Source, and input and output of the decoder."""
    generator = torch.Generator().manual_seed(_SEED)
    shape = (workload.batch, workload.length)
    source, target = (
        torch.randint(_FIRST_WORD, size, shape, generator=generator)
        for size in (subject.source_vocabulary, subject.target_vocabulary)
    )
    edge = torch.ones(workload.batch, 1, dtype=torch.int64)
    return DeviceBatch(
        torch.cat((source, edge * EOS), 1).to(device),
        torch.cat((edge * BOS, target), 1).to(device),
        torch.cat((target, edge * EOS), 1).to(device),
    )


def _training(model: TranslationModel, batch: DeviceBatch, policy: PrecisionPolicy) -> Callable[[], object]:
    """One update: forward and backward pass, clipping and Adam."""
    config = TrainingConfig()
    model.train()
    places = torch.arange(len(batch.source), device=batch.source.device)
    languages = places % model.languages if model.languages else None  # in turn, as training mixes them
    strategy = ParallelStrategy(model, ProcessGroup())
    optimizer = make_optimizer(model, config.optimizer, config.clip_norm, strategy)

    def step() -> None:
        with policy.autocast():
            sides = (batch.source, batch.target_input, batch.target_output)
            sums = model.loss(*sides, config.label_smoothing, languages=languages)
        loss = sums.smoothed / batch.target_output.numel()
        torch.autograd.backward(loss)
        optimizer.step(1e-4, loss.detach())
        optimizer.zero_grad()  # here, so that an update's memory is all that it takes on top of the weights

    return step


def _decoding(
    model: TranslationModel, source: Tensor, workload: Workload, formats: tuple[torch.dtype, Packing]
) -> Callable[[], object]:
    """Beam search for translations of exactly `length` subwords."""
    kind, packing = formats
    pack_weights(model.eval().to(kind), packing)
    length, count = workload.length, workload.batch
    config = DecodingConfig(
        beam=workload.beam, min_length=length, max_length_ratio=0.0, max_length_extra=length
    )
    languages = source.new_zeros(count) if model.languages else None
    sentences = Batch(source, [length] * count, range(1, count + 1), languages=languages)
    return lambda: generate(model, sentences, config)


_LABELS: Mapping[Axis, str] = {
    "batch": "batch [sentences]",
    "beam": "beam [hypotheses]",
    "length": "length [subwords]",
    "depth": "depth of both stacks [layers]",
}


def speed_finding(
    subjects: Sequence[MeasuredArchitecture],
    sources: Sequence[ModelSource],
    values: Mapping[Axis, Sequence[int]],
    modes: Sequence[Mode],
    base: Workload,
    *,
    rounds: int,
    device: torch.device,
    tell: LogFn,
    precision: str = "auto",
) -> Finding:
    """Measure speed and memory against every axis, as `sweep`: a table and two curves for each.

    Args:
        sources: The subjects that are trained models.
        values: What each axis goes through; axes without values are left out.

    Raises:
        UsageError: There is nothing to measure, or a depth is impossible.
    """
    tables, figures = list[Table](), list[LineChart]()
    measured = ["speed [sentences/s] .1", "target [tokens/s] .0", "memory [MiB] .1"]
    measure = partial(sweep, rounds=rounds, device=device, tell=tell, precision=precision)
    for mode in modes:
        for axis in AXES[mode]:
            if axis_values := values.get(axis):
                speeds = measure(subjects, mode, axis, axis_values, base)
                tables.append(
                    Table(
                        title=f"{mode.capitalize()} against {axis}",
                        columns=["model", _LABELS[axis], *measured],
                        rows=speeds,
                    )
                )
                figures += _figures(mode, axis, speeds)
    if not tables:
        raise UsageError("no axis to measure", "give values such as --batch 1,8,64")
    kind, packing = number_formats(device, precision)
    settings = {name: str(value) for name, value in asdict(base).items() if value is not None}
    settings |= {
        "rounds": str(rounds),
        "device": str(describe(device)["device"]),
        "threads": str(torch.get_num_threads()),
        "precision of training": PrecisionPolicy.choose("auto", device).precision,
        "precision of decoding": str(kind).removeprefix("torch.") if packing == "none" else packing,
    }
    return Finding(
        analysis="speed",
        title="Speed and memory of training and decoding",
        measured="One axis at a time moves; the others stay at "
        f"batch {base.batch}, beam {base.beam}, length {base.length} and the own depth. Sentences "
        "are random subwords of one length and translations have as many as their source, so models "
        "with random weights do the same work as trained ones. Training is forward and backward pass, "
        "clipping and Adam; decoding is beam search. Memory is the peak on a GPU on top of weights and "
        f"optimizer. The fastest of {rounds} rounds counts, in turn.",
        tables=tables,
        figures=figures,
        provenance=provenance(sources, settings=settings),
    )


def _figures(mode: Mode, axis: Axis, speeds: Sequence[Speed]) -> Iterator[LineChart]:
    shown = [("speed", "speed [target tokens/s]", "tokens")]
    if all(speed.memory is not None for speed in speeds):
        shown.append(("memory", "peak memory [MiB]", "memory"))
    subjects = dict.fromkeys(speed.subject for speed in speeds)
    of_subjects = {name: [speed for speed in speeds if speed.subject == name] for name in subjects}
    for name, y, value in shown:
        yield LineChart(
            name=f"{mode}-{axis}-{name}",
            title=f"{mode.capitalize()}: {name} against {axis}",
            x=_LABELS[axis],
            y=y,
            series=[
                Series(name=subject, x=[each.value for each in own], y=[getattr(each, value) for each in own])
                for subject, own in of_subjects.items()
            ],
        )
