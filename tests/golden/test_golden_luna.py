"""The three attentions of Luna against the authors' code: outputs, gradients, steps and states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from golden_names import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    Case,
    Place,
    Places,
    case,
    check_gradients,
    deviation,
    load,
)
from torch import Tensor, nn

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.luna import (
    LunaCausalAttention,
    LunaConfig,
    LunaCrossAttention,
    LunaSelfAttention,
)
from deepwire.model.stack_spec import Side, StackSpec

NESTED = {"pq": "packing.query", "pc": "packing.key_value", "q": "query", "c": "key_value", "o": "output"}


def spec_of(side: Side, heads: int) -> StackSpec:
    """The spec of stacks whose sequence has three rows."""
    settings = {"d_model": 16, "heads": heads, "dropout": 0.0, "bias": {"attention": True}}
    return replace(ModelConfig.model_validate(settings).specs()[side], layers=1)


def loaded(module: nn.Module, golden: Case, names: Mapping[str, str]) -> dict[str, Places]:
    """Load the case's parameters; where they lie."""
    places = {
        f"{theirs}.{leaf}": (Place(f"{ours}.{leaf}"),)
        for theirs, ours in names.items()
        for leaf in ("weight", "bias")
    }
    assert golden.params.keys() == places.keys()
    load(module, golden.params, places)
    return places


def differentiable(golden: Case, *names: str) -> list[Tensor]:
    return [golden[f"in/{name}"].clone().requires_grad_() for name in names]


def check_inputs(golden: Case, inputs: Mapping[str, Tensor]) -> None:
    for name, found in inputs.items():
        assert found.grad is not None
        assert deviation(found.grad, golden[f"grad/in/{name}"]) < GRADIENT_TOLERANCE, name


def test_encoder_attention() -> None:
    golden = case("luna_self")
    mixer = LunaConfig(length=3, pack_heads=2).build(spec_of("encoder", 4))
    assert isinstance(mixer, LunaSelfAttention)
    names = {theirs: ours if ours.startswith("pack") else f"unpack.{ours}" for theirs, ours in NESTED.items()}
    places = loaded(mixer, golden, names)
    x, p = differentiable(golden, "x", "p")
    shown = torch.zeros(2, 1, 1, 3)
    padding = torch.zeros(2, 1, 1, x.size(1))
    output, (packed,) = mixer.forward_beside(x, (p, shown), Context(padding=padding))
    assert deviation(output, golden["out/result"]) < OUTPUT_TOLERANCE
    assert deviation(packed, golden["out/projected"]) < OUTPUT_TOLERANCE
    ((output * golden["cot/result"]).sum() + (packed * golden["cot/projected"]).sum()).backward()
    check_inputs(golden, {"x": x, "p": p})
    check_gradients(mixer, golden.grads, places, GRADIENT_TOLERANCE)


def test_attention_from_target_to_source() -> None:
    golden = case("luna_cross")
    cross = LunaConfig(length=3).cross_attention(spec_of("decoder", 2))
    assert isinstance(cross, LunaCrossAttention)
    places = loaded(cross, golden, NESTED)
    x, p, encoded = differentiable(golden, "x", "p", "memory")
    shown, padding = torch.zeros(2, 1, 1, 3), torch.zeros(2, 1, 1, encoded.size(1))
    packed = cross.packed(encoded, (p, shown), Context(padding=padding))
    memory = cross.project(packed, Context(padding=shown))
    output = cross(x, memory)
    assert deviation(output, golden["out/result"]) < OUTPUT_TOLERANCE
    assert deviation(packed, golden["out/projected"]) < OUTPUT_TOLERANCE
    ((output * golden["cot/result"]).sum() + (packed * golden["cot/projected"]).sum()).backward()
    check_inputs(golden, {"x": x, "p": p, "memory": encoded})
    check_gradients(cross, golden.grads, places, GRADIENT_TOLERANCE)


def test_causal_attention_whole_and_step_by_step() -> None:
    """The steps give the same outputs, and the sums that the authors' code keeps."""
    golden = case("luna_causal")
    mixer = LunaConfig(length=3).build(spec_of("decoder", 2))
    assert isinstance(mixer, LunaCausalAttention)
    places = loaded(
        mixer,
        golden,
        {"pq": "pack_query", "pc": "pack_key", "q": "query", "c": "key_value", "o": "output"},
    )
    x, p = differentiable(golden, "x", "p")
    memory = mixer.remember((p.expand(2, -1, -1), torch.zeros(2, 1, 1, 3)))
    context = Context(memory=(memory,))
    output = mixer(x, context)
    assert deviation(output, golden["out/result"]) < OUTPUT_TOLERANCE
    (output * golden["cot/result"]).sum().backward()
    check_inputs(golden, {"x": x, "p": p})
    check_gradients(mixer, golden.grads, places, GRADIENT_TOLERANCE)
    state, index = mixer.init_state(2, x), CacheIndex(2)
    with torch.no_grad():
        for position in range(x.size(1)):
            found, state = mixer.step(x[:, position : position + 1], state, context.replace(index=index))
            assert deviation(found[:, 0], golden["out/step"][:, position]) < OUTPUT_TOLERANCE
            index = index.advance()
    assert deviation(state[0], golden["out/key_sum"]) < OUTPUT_TOLERANCE
    assert deviation(state[1], golden["out/value_sum"]) < OUTPUT_TOLERANCE
