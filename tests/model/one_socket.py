"""One socket by itself, of small stacks, for formulas that are written out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from deepwire.model.aggregations.aggregation import Aggregation
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import Connection
from deepwire.model.context import Context
from deepwire.model.stack_spec import SIDES, Side


def config_of(layers: int = 2, *, model: dict[str, object] | None = None, **stack: object) -> ModelConfig:
    """The same in encoder and decoder."""
    sizes = {"d_model": 16, "heads": 4, "feed_forward": 24, "dropout": 0.0, **(model or {})}
    return ModelConfig.model_validate({**sizes, **{side: {"layers": layers, **stack} for side in SIDES}})


def connection_of(settings: object, layers: int = 2, side: Side = "encoder") -> Connection:
    config = config_of(layers, connection=settings)
    return config.stack(side).connection.build(config.specs()[side])


def through(connection: Connection, sublayers: Iterable[nn.Module], x: Tensor) -> Tensor:
    """What leaves a stack of these sub-layers."""
    state = connection.start(x, Context())
    for index, sublayer in enumerate(sublayers):
        read = connection.read(state, index, Context())
        state = connection.write(state, index, read, sublayer(read), Context())
    return connection.normalise(connection.result(state, Context()), Context())


def aggregated(aggregation: Aggregation, vectors: Sequence[Tensor]) -> list[Tensor]:
    """What each layer reads, and what leaves the stack, when these are y_0 to y_L."""
    history, read = aggregation.start(vectors[0], Context())
    reads = [read]
    for layer, output in enumerate(vectors[1:]):
        history, read = aggregation.close(history, output, layer, Context())
        reads.append(read)
    return reads
