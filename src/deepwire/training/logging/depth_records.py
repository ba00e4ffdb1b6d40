"""Records for analyses, where ``training.record`` asks for them: gradients and weights by layer."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.counts import Count
from deepwire.config.section import Section
from deepwire.training.logging.metrics_log import MetricsLog, Value

if TYPE_CHECKING:  # a run file is read without them, and sooner
    from deepwire.checkpoint.run_directory import RunDirectory
    from deepwire.model.translation_model import TranslationModel


class RecordConfig(Section):
    """What training takes down for analyses, beside its metrics."""

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


class DepthRecords:
    """Writes ``gradients.jsonl`` and ``depth_weights.jsonl`` of a run; without a wish it does nothing at all.

    Reading the numbers waits for the device, so a record costs little only every so many updates.

    Args:
        run: Where the files lie.
        config: What to record, and how often.
    """

    def __init__(self, run: RunDirectory, config: RecordConfig) -> None:
        self._config = config
        self._gradients = MetricsLog(run.gradients) if config.gradients else None
        self._weights = MetricsLog(run.depth_weights) if config.depth_weights else None
        self._layers: list[tuple[str, list[nn.Parameter]]] = []

    def __enter__(self) -> DepthRecords:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for log in self._logs():
            log.__exit__(kind, error, trace)

    def gradients(self, update: int, model: TranslationModel) -> None:
        """Record the gradients that are set now, before they are clipped, if this update is due."""
        every = self._config.gradients
        if self._gradients is None or every is None or update % every:
            return
        self._layers = self._layers or layers_of(model)
        self._gradients.write({"update": update, **gradient_norms(self._layers)})

    def weights(self, update: int, model: TranslationModel) -> None:
        """Record the depth weights as they are now, if an update of this number is due."""
        every = self._config.depth_weights
        if self._weights is None or every is None or update % every:
            return
        if weights := depth_weights(model):  # a run file may inherit the wish for a model without any
            self._weights.write({"update": update, **weights})

    def sync(self) -> None:
        """Wait until all records have reached the disk."""
        for log in self._logs():
            log.sync()

    def _logs(self) -> list[MetricsLog]:
        return [log for log in (self._gradients, self._weights) if log is not None]


def layers_of(model: TranslationModel) -> list[tuple[str, list[nn.Parameter]]]:
    """Every parameter once: ``encoder.1``, ..., ``encoder.rest``, likewise the decoder, ``other``."""
    layers: list[tuple[str, list[nn.Parameter]]] = []
    seen: set[nn.Parameter] = set()
    for side, stack in model.stacks().items():
        for name, parameters in stack.parameters_by_layer():
            layers.append((f"{side}.{name}", [each for each in parameters if each not in seen]))
            seen |= set(parameters)
    return [*layers, ("other", [each for each in model.parameters() if each not in seen])]


@torch.no_grad()
def gradient_norms(layers: list[tuple[str, list[nn.Parameter]]]) -> dict[str, Value]:
    """Euclidean norm of the gradient of each list of parameters; 0 where none has a gradient."""
    device = next(parameter.device for _, parameters in layers for parameter in parameters)
    nothing = torch.zeros((), device=device)
    lengths: list[Tensor] = []
    for _, parameters in layers:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        lengths.append(nn.utils.get_total_norm(gradients).float() if gradients else nothing)
    # One wait for the device, not one for each layer.
    values: list[float] = torch.stack(lengths).tolist()
    return {name: value for (name, _), value in zip(layers, values, strict=True)}


def depth_weights(model: TranslationModel) -> dict[str, Value]:
    """The depth weights of both stacks by ``side.key``, as lists of rows; of several for a pair the mean."""
    rows_by_key: dict[str, Value] = {}
    for side, stack in model.stacks().items():
        for weights in stack.depth_weights():
            values = weights.values.detach().float()
            values = values.mean(-1) if values.dim() > 2 else values
            rows_by_key[f"{side}.{weights.key}"] = values.tolist()
    return rows_by_key
