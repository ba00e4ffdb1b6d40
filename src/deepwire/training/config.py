"""The ``training`` section of a run file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from deepwire.config.choice import ChoiceName
from deepwire.config.counts import MAX_THREADS, Count, Duration, Positive
from deepwire.config.section import MAY_CHANGE, Section, ShorthandSection, UnusedSettings
from deepwire.data.vocabulary import UNK, Vocabularies
from deepwire.model.perturbation import InputNoiseConfig, Perturbation, SimCutConfig, Words
from deepwire.training.extras import EmaConfig, GuidedAlignmentConfig, LayerDropConfig
from deepwire.training.freezing import Patterns
from deepwire.training.optimizers import OptimizerChoice
from deepwire.training.optimizers.optimizer import AdamWConfig
from deepwire.training.schedule import InverseSqrtConfig, ScheduleConfig


class StartFromSection(ShorthandSection):
    """A model whose parameters a new run begins with; a plain name is the model, with nothing allowed."""

    written_as = (str,)
    plain_sets = ("model",)

    model: str = Field(
        min_length=1,
        description="a run (its best checkpoint), RUN@last, RUN@avg5 or a model directory, named from the "
        "working directory as in the commands",
    )
    allow_missing: Patterns = Field(
        default=(), description="names of parameters that may be missing there: they begin untrained"
    )
    allow_unexpected: Patterns = Field(
        default=(), description="names of parameters there that this run need not have: they are left out"
    )
    allow_changed: Patterns = Field(
        default=(), description="settings such as model.heads that may differ though all parameters fit"
    )


DecoderLayers = Literal["none", "bottom", "spread"]


class PretrainedSection(ShorthandSection):
    """A pretrained encoder of XLM-R's layout, whose parameters a new run begins with; a plain path is it."""

    written_as = (str,)
    plain_sets = ("encoder",)

    encoder: Path = Field(
        json_schema_extra=MAY_CHANGE,
        description="folder with config.json, model.safetensors and sentencepiece.bpe.model, as downloaded "
        "from Hugging Face",
    )
    decoder: DecoderLayers = Field(
        "spread",
        description="which of its layers the decoder's layers begin with: none, the lowest ones (bottom), or "
        "some at equal distance up to the top one (spread); cross-attention begins untrained",
    )


TextMetric = Annotated[
    str, ChoiceName("metric", ("bleu", "chrf", "chrf++", "ter"), ("BLEU", "chrF", "chrF++", "TER"))
]
Metric = Literal["loss", "nll", "perplexity", "bleu", "chrf", "chrf++", "ter"]
Tokenizer = Literal["13a", "intl", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200", "char", "none"]
CaseInsensitive = BeforeValidator(
    lambda value: value.lower() if isinstance(value, str) else value,
    json_schema_input_type=Literal["BLEU", "chrF", "chrF++", "TER"],
)


class ValidationConfig(Section):
    """How often and by which metrics the validation set is scored."""

    every: Count = Field(default=500, ge=1, description="updates between validations")
    metric: Annotated[Metric, CaseInsensitive] = Field(
        default="loss",
        description="what makes a checkpoint the best: loss, nll, perplexity, or one of metrics",
    )
    bleu: bool = Field(default=False, description="also translate the validation set and score BLEU")
    metrics: tuple[TextMetric, ...] = Field(
        default=(),
        description="score the translated validation set by these: bleu, chrf, chrf++, ter, or those of "
        "other packages, which choose no checkpoint",
    )
    tokenize: Tokenizer | None = Field(
        default=None, description="tokenizer of BLEU; default: that of the target language"
    )
    bleu_every: Count | None = Field(
        default=None,
        ge=1,
        description="updates between scores of translations, a multiple of every; default: every. "
        "The last update is always scored",
    )
    beam: int = Field(default=1, ge=1, le=100, description="beam of the translations that are scored")
    max_sentences: Count | None = Field(default=None, ge=1, description="use only the first n sentences")
    max_tokens: Count = Field(default=4096, ge=1, description="padded tokens in one forward pass")

    @model_validator(mode="after")
    def _check(self) -> ValidationConfig:
        if not self.scores(self.metric):
            raise ValueError(f"metric is {self.metric}, which is not scored: add it to validation.metrics")
        if self.bleu_every is not None and self.bleu_every % self.every:
            raise ValueError(f"bleu_every is {self.bleu_every}, not a multiple of every ({self.every})")
        return self

    def unused_settings(self) -> UnusedSettings:
        """Settings of translation, if the validation set is not translated."""
        if not self.text_metrics:
            for name in ("bleu_every", "beam"):
                yield name, "no translations are scored; set bleu: true or metrics"
        if "bleu" not in self.text_metrics:
            yield "tokenize", "BLEU is not scored; set bleu: true"

    @property
    def text_metrics(self) -> tuple[TextMetric, ...]:
        """Metrics of translations; empty if the validation set is not translated."""
        metrics: tuple[TextMetric, ...] = ("bleu", *self.metrics) if self.bleu else self.metrics
        return tuple(dict.fromkeys(metrics))

    def scores(self, metric: Metric) -> bool:
        """Whether validation computes this metric."""
        return metric in ("loss", "nll", "perplexity") or metric in self.text_metrics


class EarlyStoppingConfig(Section):
    """Stop when a metric has not improved for a while."""

    metric: Annotated[Metric, CaseInsensitive] = Field(
        default="loss", description="what must improve: loss, nll, perplexity, or one of validation.metrics"
    )
    patience: int = Field(
        default=10, ge=1, description="scores of the metric without improvement before the stop"
    )
    min_improvement: float = Field(
        default=0.0, ge=0, description="a smaller change does not count as improvement"
    )


class CheckpointConfig(Section):
    """How often checkpoints are written and which are kept."""

    every: Count | None = Field(
        default=None, ge=1, description="updates between checkpoints; default: validation.every"
    )
    keep_last: int = Field(default=5, ge=1, description="newest checkpoints to keep")
    keep_best: int = Field(default=1, ge=1, description="best checkpoints to keep")


class RecordConfig(Section):
    """Additional records of training, for analyses."""

    gradients: Count | None = Field(
        default=None,
        ge=1,
        description="updates between records of the norm of each layer's gradient (gradients.jsonl)",
    )
    depth_weights: Count | None = Field(
        default=None,
        ge=1,
        description="updates between records of the weights of layers: DLCL, GTrans, ... "
        "(depth_weights.jsonl)",
    )


class TrainingConfig(Section):
    """How a model is trained: budget, loss, optimizer, precision, validation, checkpoints."""

    max_updates: Count | None = Field(
        json_schema_extra=MAY_CHANGE,
        default=20_000,
        ge=1,
        description="updates to train; default 20k, or none where stop_after is given",
    )
    stop_after: Duration | None = Field(
        json_schema_extra=MAY_CHANGE,
        default=None,
        description="another limit: updates (20ku), epochs (30e) or target tokens (1Gt)",
    )
    batch_tokens: Count = Field(default=4096, ge=1, description="target tokens of one update")
    micro_batch_tokens: Count | None = Field(
        default=None, ge=1, description="padded tokens of one forward pass; default: by device and d_model"
    )
    label_smoothing: float = Field(
        default=0.1, ge=0, lt=1, description="probability mass taken from the reference"
    )
    label_smoothing_form: Literal["uniform_wrong", "uniform"] = Field(
        default="uniform_wrong",
        description="the mass goes to all wrong words (uniform_wrong) or to the whole vocabulary (uniform)",
    )
    r_drop: float = Field(
        default=0.0,
        ge=0,
        description="R-Drop: weight alpha of the divergence of two passes with other dropout; 0: one pass",
    )
    sim_cut: SimCutConfig | None = Field(
        default=None,
        description="SimCut: a second pass with words of both sides cut; a number is its weight alpha",
    )
    input_noise: InputNoiseConfig | None = Field(
        default=None, description="words of the input that are cut, unknown or replaced at random"
    )
    layer_drop: LayerDropConfig | None = Field(
        default=None,
        description="layers left out of updates at random (LayerDrop, stochastic depth); one number or more",
    )
    guided_alignment: GuidedAlignmentConfig | None = Field(
        default=None, description="a head of the cross-attention learns the alignments of the training text"
    )
    start_from: StartFromSection | None = Field(
        default=None, description="begin a new run with the parameters of a trained model"
    )
    pretrained: PretrainedSection | None = Field(
        default=None, description="begin a new run with a pretrained encoder of XLM-R's layout, from a folder"
    )
    freeze: Patterns = Field(
        default=(), description="names of parameters that stay as they are, such as encoder.*"
    )
    rate_factors: dict[str, Positive] = Field(
        default={},
        description="learning rates of parameters as multiples of the schedule's, by patterns of names such "
        "as encoder.*: 0.1; where several match, the last one counts",
    )
    ema: EmaConfig | None = Field(default=None, description="keep a moving average of the weights")
    optimizer: OptimizerChoice = Field(default=AdamWConfig(), description="Adam or Muon, and their constants")
    schedule: ScheduleConfig = Field(default=InverseSqrtConfig(), description="learning rate of each update")
    clip_norm: float | None = Field(default=1.0, gt=0, description="largest gradient norm; null: no clipping")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        json_schema_extra=MAY_CHANGE,
        default="auto",
        description="auto takes bf16 where the device computes it faster",
    )
    device: str = Field(json_schema_extra=MAY_CHANGE, default="auto", description="auto, cpu, cuda or cuda:N")
    threads: int | None = Field(
        json_schema_extra=MAY_CHANGE,
        default=None,
        ge=1,
        le=MAX_THREADS,
        description="CPU threads; default: torch's own choice",
    )
    processes: int | None = Field(
        json_schema_extra=MAY_CHANGE,
        default=None,
        ge=1,
        le=256,
        description="on a CPU: processes that `deepwire train` shares these threads among; default: as many, "
        "up to four, as still have a thread for each 512 tokens of a micro-batch",
    )
    validation: ValidationConfig = Field(
        json_schema_extra=MAY_CHANGE, default=ValidationConfig(), description="scores on the validation set"
    )
    early_stopping: EarlyStoppingConfig | None = Field(
        json_schema_extra=MAY_CHANGE, default=None, description="stop when a metric stands still"
    )
    checkpoint: CheckpointConfig = Field(
        json_schema_extra=MAY_CHANGE, default=CheckpointConfig(), description="checkpoints to write and keep"
    )
    log_every: Count = Field(
        json_schema_extra=MAY_CHANGE,
        default=50,
        ge=1,
        description="updates between lines of metrics.jsonl and of the log",
    )
    record: RecordConfig = Field(
        json_schema_extra=MAY_CHANGE,
        default=RecordConfig(),
        description="records for deepwire analyze; none unless asked for",
    )
    tensorboard: bool = Field(
        json_schema_extra=MAY_CHANGE,
        default=False,
        description="also write TensorBoard events (extra: tensorboard)",
    )
    sharding: Literal["none", "full"] = Field(
        json_schema_extra=MAY_CHANGE,
        default="none",
        description="of several processes each holds the whole model (none), or a part of each parameter, "
        "gradient and moment (full), for models that do not fit",
    )
    activation_checkpointing: bool = Field(
        json_schema_extra=MAY_CHANGE,
        default=False,
        description="keep only what enters each layer for the backward pass and compute the rest again: the "
        "same numbers, much less memory, about a third more time",
    )
    compile: bool = Field(
        json_schema_extra=MAY_CHANGE, default=False, description="compile each layer with torch.compile"
    )

    @property
    def checkpoint_interval(self) -> int:
        """Updates from one regular checkpoint to the next."""
        return self.checkpoint.every or self.validation.every

    @property
    def divergence(self) -> Literal["r_drop", "sim_cut"] | None:
        """The method with two passes of each batch; also the name of their divergence in the log."""
        if self.r_drop:
            return "r_drop"
        return None if self.sim_cut is None else "sim_cut"

    @property
    def losses(self) -> tuple[str, ...]:
        """Names of the losses that are recorded."""
        added = (self.divergence, None if self.guided_alignment is None else "guided_alignment")
        return ("loss", "nll", *(name for name in added if name))

    def perturbation(self, vocabularies: Vocabularies) -> Perturbation | None:
        """The noise on the input of a batch; None without."""
        if self.input_noise is None and self.sim_cut is None:
            return None
        # Language tags, whose ids come after those of the vocabulary, are never replaced.
        source, target = (Words(UNK, side.size) for side in (vocabularies.source, vocabularies.target))
        return Perturbation(source, target, self.input_noise, self.sim_cut)

    def unused_settings(self) -> UnusedSettings:
        """The form of label smoothing where there is none; processes on GPUs, which torchrun starts."""
        if self.label_smoothing == 0:
            yield "label_smoothing_form", "there is none with label_smoothing: 0"
        if self.device.startswith("cuda"):
            yield "processes", "it is for a CPU; start several on GPUs with torchrun"

    @model_validator(mode="before")
    @classmethod
    def _one_limit(cls, data: object) -> object:
        """`stop_after` replaces the default of `max_updates`."""
        if isinstance(data, dict) and data.get("stop_after") is not None and "max_updates" not in data:
            return {**data, "max_updates": None}
        return data

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise ValueError(f"unknown device {device!r}: write auto, cpu, cuda or cuda:N")
        return device

    @model_validator(mode="after")
    def _check(self) -> TrainingConfig:
        if self.max_updates is None and self.stop_after is None:
            raise ValueError("training has no end: set max_updates or stop_after")
        if self.r_drop and self.sim_cut is not None:
            raise ValueError("r_drop and sim_cut exclude each other: both say what a second pass is for")
        if self.compile and self.guided_alignment is not None:
            raise ValueError("compile and guided_alignment exclude each other; leave one of them out")
        if self.sharding != "none" and self.record != RecordConfig():
            raise ValueError(
                "record needs every gradient whole in one process: set sharding to none, or leave record out"
            )
        if self.sharding != "none" and self.guided_alignment is not None:
            raise ValueError("guided_alignment and sharding exclude each other; set sharding to none")
        if self.sharding != "none" and not self.optimizer.supports_sharding:
            raise ValueError(
                f"optimizer {self.optimizer.type} needs every matrix whole in one process: set sharding to "
                "none, or take adamw"
            )
        if self.start_from is not None and self.pretrained is not None:
            raise ValueError("a run begins with one model: set start_from or pretrained, not both")
        self.schedule.check(self.max_updates)
        stopping = self.early_stopping
        if stopping is not None and not self.validation.scores(stopping.metric):
            raise ValueError(
                f"early_stopping.metric is {stopping.metric}, which is not scored: "
                "add it to validation.metrics"
            )
        return self
