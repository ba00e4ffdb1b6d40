"""MHPLSTM against the released code (Neutron) and an independent implementation of the paper's equations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from golden_names import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    Place,
    Places,
    case,
    check_gradients,
    check_module,
    deviation,
    load,
    neutron,
)
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.mhplstm import MHPLSTM, MHPLSTMConfig

EOS = 2
Arrange = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]


def joined(golden: Mapping[str, Tensor], parts: list[str], axis: int) -> Tensor | None:
    """Golden tensors next to each other; None unless all are there."""
    found = [golden[part] for part in parts if part in golden]
    return torch.cat(found, axis) if len(found) == len(parts) else None


def released(golden: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Neutron's tensors by our names; ours has one matrix for all that reads [i | LN(s)]."""
    two_layer = any(name.startswith("net.trans_ifg.") for name in golden)
    mix = ["net.trans_ifg", "net.trans_hid.0"] if two_layer else ["net.trans_hid"]
    single = {
        "trans_input": "input",
        "trans_output": "output",
        "net.normer_csum": "cells.past_norm",
        "net.trans_og.0": "cells.output_gate",
        "net.trans_og.1": "cells.output_norm",
        "net.normer_ifg" if two_layer else "net.normer_hid": "cells.gate_norm",
    }
    if two_layer:
        single |= {"net.trans_hid.1": "cells.hidden_norm", "net.trans_hid.3": "cells.hidden_output"}
    found = {"cells.initial": golden.get("net.init_cx")}
    for leaf in ("weight", "bias"):
        found[f"cells.mix.{leaf}"] = joined(golden, [f"{part}.{leaf}" for part in mix], -1)
        found |= {f"{ours}.{leaf}": golden.get(f"{theirs}.{leaf}") for theirs, ours in single.items()}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def paper(golden: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the equations by our names; matrices of heads are `[heads, in, out]` here."""
    first = "h1" if "W_h1" in golden else "h"
    by_head = {name: tensor.transpose(1, 2) for name, tensor in golden.items() if tensor.dim() == 3}
    mix = ("i", "f", first)
    gates = ("i", "f") if first == "h1" else mix
    found = {
        "cells.initial": golden.get("c0"),
        "cells.mix.weight": joined(by_head, [f"W_{part}" for part in mix], -1),
        "cells.mix.bias": joined(golden, [f"b_{part}" for part in mix], -1),
        "cells.output_gate.weight": by_head.get("W_o"),
        "cells.output_gate.bias": golden.get("b_o"),
        "cells.hidden_output.weight": by_head.get("W_h2"),
        "cells.hidden_output.bias": golden.get("b_h2"),
        "input.weight": golden.get("W_s"),
        "input.bias": golden.get("b_s"),
        "output.weight": golden.get("W_m"),
        "output.bias": golden.get("b_m"),
    }
    for leaf, short in (("weight", "w"), ("bias", "b")):
        norms = {name: golden[name].unsqueeze(1) for name in golden if name.startswith("LN_")}
        found[f"cells.gate_norm.{leaf}"] = joined(norms, [f"LN_{part}.{short}" for part in gates], 1)
        found[f"cells.past_norm.{leaf}"] = golden.get(f"LN_s.{short}")
        found[f"cells.output_norm.{leaf}"] = golden.get(f"LN_o.{short}")
        found[f"cells.hidden_norm.{leaf}"] = golden.get(f"LN_h1.{short}")
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def places(named: Mapping[str, Tensor], prefix: str = "") -> dict[str, Places]:
    """Every tensor lies where its name says, below a prefix."""
    return {name: (Place(prefix + name),) for name in named}


Setting = tuple[Arrange, dict[str, object], dict[str, int]]
JOINT: dict[str, object] = {"norms": "joint"}
CASES: dict[str, Setting] = {
    "hplstm_base_relu": (released, {**JOINT, "hidden": "one_layer"}, {}),
    "hplstm_base_gelu_bias_osize48": (
        released,
        {**JOINT, "hidden": "one_layer", "activation": "gelu", "bias": True},
        {"dim": 48},
    ),
    "hplstm_hfn_relu": (released, {**JOINT, "hidden_size": 128}, {}),
    "hplstm_hfn_glu": (released, {**JOINT, "hidden_size": 96, "activation": "glu"}, {}),
    "mhplstm_paper_h2": (paper, {"hidden_size": 64, "bias": True}, {}),
}


def build(
    side: str, settings: Mapping[str, object], arranged: Mapping[str, Tensor], changes: Mapping[str, Any]
) -> MHPLSTM:
    """A mixer of 4 heads on vectors of width 32, with golden parameters."""
    model = ModelConfig(d_model=32, heads=4, dropout=0.0)
    context = replace(model.specs()["encoder" if side == "encoder" else "decoder"], mixer_width=32)
    mixer = MHPLSTMConfig.model_validate(settings).build(replace(context, **changes))
    assert isinstance(mixer, MHPLSTM)
    load(mixer, arranged, places(arranged))
    return mixer


@pytest.mark.parametrize("name", CASES)
def test_decoder_mixer(name: str) -> None:
    """Outputs, all gradients, and the same step by step with its two states."""
    golden, (arrange, settings, changes) = case(name), CASES[name]
    mixer = build("decoder", settings, arrange(golden.params), changes)
    x = check_module(golden, lambda x: mixer(x, Context()))
    grads = arrange(golden.grads)
    assert set(grads) == {parameter for parameter, _ in mixer.named_parameters()}
    check_gradients(mixer, grads, places(grads), GRADIENT_TOLERANCE)
    with torch.no_grad():
        state = mixer.init_state(x.size(0), x)
        for position in range(x.size(1)):
            here = slice(position, position + 1)
            step, state = mixer.step(x[:, here], state, Context(index=CacheIndex(len(x), position=position)))
            assert deviation(step, golden["out/y"][:, here]) < OUTPUT_TOLERANCE
            if "step/cell_state" in golden.tensors:
                assert deviation(state[0], golden["step/csum_state"][:, position]) < OUTPUT_TOLERANCE
                assert deviation(state[1], golden["step/cell_state"][:, position]) < OUTPUT_TOLERANCE


def test_encoder_mixer() -> None:
    """Both directions, where nothing is padded: padding reaches the sums and norms of the released code."""
    golden = case("bihplstm_hfn_relu")
    arranged = released(golden.params)
    mixer = build("encoder", {**JOINT, "hidden_size": 128}, arranged, {})
    x = golden["in/x"].clone().requires_grad_()
    assert deviation(mixer(x, Context()), golden["out/y_nomask"]) < OUTPUT_TOLERANCE
    padding = torch.zeros(3, 1, 1, 7).masked_fill_(golden["in/mask"].view(3, 1, 1, 7).bool(), float("-inf"))
    whole = ~golden["in/mask"].view(3, 7).any(1)
    assert whole.any()
    y = mixer(x, Context(padding=padding))
    assert deviation(y[whole], golden["out/y"][whole]) < OUTPUT_TOLERANCE
    (y * golden["cot/R"])[whole].sum().backward()
    assert x.grad is not None
    assert deviation(x.grad[whole], golden["grad/in/x"][whole]) < GRADIENT_TOLERANCE


def by_our_names(golden: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A whole model's tensors by our names."""
    found: dict[str, Tensor] = {}
    rest = dict(golden)
    for layer in range(2):
        prefix = f"dec.nets.{layer}.net."
        own = {name.removeprefix(prefix): rest.pop(name) for name in golden if name.startswith(prefix)}
        found |= {f"decoder.mixers.{layer}.{name}": tensor for name, tensor in released(own).items()}
    for name, (place,) in neutron(rest, post_norm=False).items():
        found[place.name] = rest[name]
    return found
