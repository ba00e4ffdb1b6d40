"""Which parameters Muon moves and how; its runs, and what is refused. Its numbers: tests/golden."""

from __future__ import annotations

import pytest
import torch

from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.training.optimizers import muon
from deepwire.training.optimizers.muon import (
    Matrices,
    Muon,
    MuonConfig,
    hidden_matrices,
    orthogonalize,
)
from deepwire.training.optimizers.optimizer import AdamWConfig, Step, make_optimizer
from deepwire.training.parallel_strategy import ParallelStrategy

ONE = torch.tensor(1.0)
SHAPE = {"d_model": 8, "heads": 2, "feed_forward": 16, "encoder": {"layers": 2}, "decoder": {"layers": 1}}


def small_model(**settings: object) -> TranslationModel:
    torch.manual_seed(1)
    return build_model(ModelConfig.model_validate({**SHAPE, **settings}), 12, 12)


def matrices_of(model: TranslationModel) -> dict[str, Matrices]:
    return hidden_matrices(model, dict(model.named_parameters()))


def move(matrices: dict[str, Matrices], weight_decay: float = 0.0) -> None:
    """Take one step of those that have a gradient."""
    gradients = {name: one.parameter.grad for name, one in matrices.items()}
    given = {name: gradient for name, gradient in gradients.items() if gradient is not None}
    Muon(matrices, MuonConfig(weight_decay=weight_decay)).step(given, Step(0.1, 1, ONE, torch.tensor(True)))


def test_it_moves_the_matrices_of_layers_alone() -> None:
    found = matrices_of(small_model())
    assert {name: one.parts for name, one in found.items() if ".0." in name and "encoder" in name} == {
        "encoder.mixers.0.query_key_value.weight": 3,
        "encoder.mixers.0.output.weight": 1,
        "encoder.feed_forwards.0.input.weight": 1,
        "encoder.feed_forwards.0.output.weight": 1,
    }
    assert found["decoder.crosses.0.key_value.weight"].parts == 2
    assert all(name.endswith(".weight") and one.parameter.dim() == 2 for name, one in found.items())
    assert not any("embedding" in name or "norm" in name or "head." in name for name in found)


def test_without_matrices_there_is_nothing_for_it() -> None:
    with pytest.raises(UsageError, match="no matrix left for Muon"):
        hidden_matrices(small_model(), {})


@pytest.mark.parametrize("shape", [(6, 6), (10, 4), (4, 10)])
def test_singular_values_come_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    given = torch.randn(3, *shape)
    u, _, v = torch.linalg.svd(given, full_matrices=False)
    found = orthogonalize(given)
    values = torch.linalg.svdvals(found)
    assert 0.5 < float(values.min()) <= float(values.max()) < 1.3
    # The singular vectors are those of the matrix.
    within = u.mT @ found @ v.mT
    torch.testing.assert_close(within, torch.diag_embed(within.diagonal(dim1=1, dim2=2)), atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 64), (16, 17)])
def test_any_shape_takes_five_steps(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The way through small products, and matrices in several groups, are the same steps."""
    monkeypatch.setattr("deepwire.training.optimizers.muon._CACHED", 600)
    torch.manual_seed(1)
    given = torch.randn(5, *shape)
    given[0] = given[0, :, :1] * given[0, :1]  # of rank one
    x = given.double() / given.double().flatten(1).norm(dim=1)[:, None, None]
    wide = x.mT if shape[0] > shape[1] else x
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * x @ x.mT @ x + 2.0315 * x @ x.mT @ x @ x.mT @ x
    for steps in (muon._steps, muon._steps_of_products):
        torch.testing.assert_close(steps(wide), x.mT if shape[0] > shape[1] else x, atol=1e-11, rtol=0)
    found = orthogonalize(given).double()
    torch.testing.assert_close(found[1:], x[1:], atol=3e-6, rtol=0)
    # What is rounded in directions that it has not, by about 2^-23, grows 3.4445^5 = 485 times.
    torch.testing.assert_close(found[0], x[0], atol=2 * 485 * 2**-23, rtol=0)
    assert float(torch.linalg.svdvals(orthogonalize(given, torch.bfloat16)).max()) < 1.5


def test_parts_are_matrices_of_their_own() -> None:
    torch.manual_seed(1)
    whole, gradient = torch.randn(12, 4), torch.randn(12, 4)
    parts = [part.clone() for part in whole.split(4)]
    whole.grad = gradient
    move({"w": Matrices(whole, 3)}, 0.1)
    for part, own in zip(parts, gradient.split(4), strict=True):
        part.grad = own
        move({"w": Matrices(part, 1)}, 0.1)
    torch.testing.assert_close(whole, torch.cat(parts))


def test_shapes_do_not_mix() -> None:
    """Matrices of several shapes in one step are moved as each alone, and one without a gradient stays."""
    torch.manual_seed(1)
    given = {"a": (4, 6), "b": (6, 4), "c": (4, 6), "d": (8, 4)}
    tensors = {name: torch.randn(shape) for name, shape in given.items()}
    alone = {name: tensor.clone() for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        tensor.grad = None if name == "c" else torch.randn_like(tensor)
        alone[name].grad = tensor.grad
    move({name: Matrices(one, 1) for name, one in tensors.items()})
    for name, one in alone.items():
        before = one.clone()
        move({name: Matrices(one, 1)})
        torch.testing.assert_close(tensors[name], one)
        assert torch.equal(before, one) == (name == "c")


def test_the_rest_is_moved_by_adamw() -> None:
    moved = []
    for config in (MuonConfig(weight_decay=0.1), AdamWConfig(weight_decay=0.1)):
        model = small_model()
        optimizer = make_optimizer(model, config, None, ParallelStrategy(model, ProcessGroup()))
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step(0.01, ONE)
        moved.append({name: one.detach() for name, one in model.named_parameters()})
    by_muon = matrices_of(small_model())
    for name, one in moved[0].items():
        assert torch.equal(one, moved[1][name]) == (name not in by_muon), name
