"""Models of which only the shapes are wanted."""

from __future__ import annotations

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.meta_init import meta_init


class Called(TorchDispatchMode):
    """The operations that really run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize(
    "initialization", ["lipschitz", "pytorch", "xavier", "glorot", "fairseq", "depth_scaled"]
)
def test_shapes_are_those_of_the_model_and_nothing_is_drawn(initialization: str) -> None:
    config = ModelConfig.model_validate(
        {
            "d_model": 16,
            "heads": 2,
            "feed_forward": 24,
            "initialization": initialization,
            "encoder": {"layers": 2, "fusion": "mlrf"},
            "decoder": {"layers": 2, "mixer": "average_attention"},
        }
    )
    drawn = {"normal_", "uniform_"}
    with Called() as called:
        real = build_model(config, 20, 20)
    assert drawn & called.names
    with Called() as called, meta_init():
        outline = build_model(config, 20, 20)
    assert not drawn & called.names
    assert all(value.is_meta for value in outline.parameters())
    shapes = [{name: value.shape for name, value in one.named_parameters()} for one in (real, outline)]
    assert shapes[0] == shapes[1]
