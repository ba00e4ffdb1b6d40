"""A stack without some of its layers: every connection, in front of every aggregation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.translation_model import TranslationModel

SHAPE = {"d_model": 8, "heads": 2, "feed_forward": 8, "dropout": 0, "embeddings": {"tie": "none"}}
DROPPING: list[object] = [
    "pre_norm",
    "post_norm",
    "rezero",
    "sdu",
    "depth_lstm",
    {"type": "depth_lstm", "merge": "two", "share": "none"},
    "depth_rnn",
    "runge_kutta",
    "deepnorm",
    "admin",
    "keel",
    "branch_norm",
    "b2t",
    "resi_dual",
    "peri_ln",
    "layer_scale",
    "layer_norm_scaling",
    "laurel",
    {"type": "delta", "final_norm": False},
]
# Those that hold several streams: what they give to an aggregation is a sum, and so not exactly what it gave.
SEVERAL = [
    {"type": "attn_res", "block": "full"},
    "hyper",
    "frac",
    "mhc_lite",
    "mhc",
    {"type": "laurel", "earlier": 2},
]


def model_of(layers: int, **settings: object) -> TranslationModel:
    torch.manual_seed(1)
    stack = {"layers": layers, **settings}
    model = build_model(ModelConfig.model_validate({**SHAPE, "encoder": stack, "decoder": stack}), 12, 12)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.train()


def drop_layer(model: TranslationModel, layer: int) -> None:
    for stack in model.stacks().values():
        stack.dropped_calls = frozenset(
            index for index, call in enumerate(stack.calls) if call.layer == layer
        )


def results(model: TranslationModel) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    source, target = (torch.randint(3, 12, (2, length), generator=generator) for length in (5, 4))
    return model.decode(source, target)[0]


@pytest.mark.parametrize(
    ("connection", "aggregation"),
    [*((each, "last") for each in DROPPING), ("pre_norm", "dlcl"), ("depth_lstm", "hierarchical")],
)
def test_the_last_layer_is_the_identity(
    monkeypatch: pytest.MonkeyPatch, connection: object, aggregation: str
) -> None:
    """Without its last layer a stack gives what a stack of fewer layers gives to the aggregation."""
    model = model_of(3, connection=connection, aggregation=aggregation)
    before = results(model)
    drop_layer(model, 2)
    seen: list[tuple[Tensor, Tensor]] = []
    close = model.decoder.aggregation.close

    def watched(
        history: tuple[Tensor, ...], output: Tensor, layer: int, context: Context
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        following, read = close(history, output, layer, context)
        seen.append((output, read))
        return following, read

    monkeypatch.setattr(model.decoder.aggregation, "close", watched)
    monkeypatch.setattr(model.decoder.aggregation, "acts", True)  # `last` is not called otherwise
    after = results(model)
    assert not torch.allclose(before, after)
    # What the layer gives to the history is what it read.
    torch.testing.assert_close(seen[2][0], seen[1][1], rtol=0, atol=0)
    # Validation and decoding have every layer.
    torch.testing.assert_close(results(model.eval()), before)


@pytest.mark.parametrize("connection", [*DROPPING, *SEVERAL])
def test_parameters_of_a_dropped_layer_have_no_gradient(connection: object) -> None:
    model = model_of(3, connection=connection)
    drop_layer(model, 1)
    results(model).square().sum().backward()
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        layers = {f"{side}.{name}": layer for name, layer in stack.parameter_layers().items()}
        for name, parameter in model.named_parameters():
            if name in layers:
                assert (parameter.grad is None) == (layers[name] == 2), name


def test_a_layer_in_the_middle_is_skipped() -> None:
    """The dropped stack is the one that is built of the other layers."""
    whole, fewer = model_of(3), model_of(2)
    for ours, theirs in zip(whole.stacks().values(), fewer.stacks().values(), strict=True):
        calls = [index for index, call in enumerate(ours.calls) if call.layer != 1]
        for kind, other in zip(ours.sublayers(), theirs.sublayers(), strict=True):
            for place, layer in enumerate((0, 2)):
                if len(kind):
                    other[place].load_state_dict(kind[layer].state_dict())
        for place, index in enumerate(calls):
            theirs.connection.norms[place].load_state_dict(ours.connection.norms[index].state_dict())
        theirs.connection.final_norm.load_state_dict(ours.connection.final_norm.state_dict())
    for name in ("source_embedding", "target_embedding"):
        getattr(fewer, name).load_state_dict(getattr(whole, name).state_dict())
    drop_layer(whole, 1)
    torch.testing.assert_close(results(whole), results(fewer))


@pytest.mark.parametrize("connection", ["pre_norm", "post_norm", "rezero", "sdu", *SEVERAL])
def test_single_sub_layers_can_be_dropped(connection: object) -> None:
    model = model_of(2, connection=connection)
    model.decoder.dropped_calls = frozenset({1, 5})  # cross-attention of layer 1, feed-forward of layer 2
    results(model).square().sum().backward()
    unused = {name for name, one in model.decoder.named_parameters() if one.grad is None}
    assert any(name.startswith("crosses.0.output") for name in unused)
    assert any(name.startswith("feed_forwards.1.") for name in unused)
    assert not any(name.startswith(("mixers", "crosses.1", "feed_forwards.0")) for name in unused)


def test_what_is_left_in_is_scaled_up() -> None:
    model = model_of(2, connection="rezero")
    with torch.no_grad():
        plain = results(model)
        model.decoder.call_scales = (2.0,) * 6
        scaled = results(model)
        alpha = model.decoder.connection.alpha
        assert isinstance(alpha, Tensor)
        alpha.mul_(2)
        model.decoder.call_scales = None
        torch.testing.assert_close(results(model), scaled)
    assert not torch.allclose(plain, scaled)


@pytest.mark.parametrize("connection", ["pre_norm", "depth_lstm", "runge_kutta"])
def test_decoding_has_every_layer_even_in_training_mode(connection: object) -> None:
    model = model_of(2, connection=connection)
    source = torch.randint(3, 12, (2, 5))
    model.eval()
    wanted, _ = model.step(torch.tensor([1, 1]), model.start(source))
    drop_layer(model, 1)
    found, _ = model.step(torch.tensor([1, 1]), model.start(source))
    torch.testing.assert_close(found, wanted)
