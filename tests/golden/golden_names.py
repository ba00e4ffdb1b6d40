"""Golden cases, and the parameter names of their makers mapped to the names of this project."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

FOLDER = Path(__file__).parent / "data"
OUTPUT_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 5e-5
# Settings of a model, without its stacks, that every maker's golden models have, and those of fairseq's.
SMALL: Mapping[str, object] = {"d_model": 32, "heads": 4, "feed_forward": 64, "dropout": 0.0}
FAIRSEQ: Mapping[str, object] = {
    **SMALL,
    "norm_eps": 1e-5,
    "bias": {"attention": True, "feed_forward": "both", "output": False},
    "positions": {"type": "sinusoidal", "layout": "halves", "first": 2},
}


class Place(NamedTuple):
    """Where (part of) a golden parameter lies: our parameter, and an index into its first axis."""

    name: str
    rows: int | slice = slice(None)


# A golden parameter is the concatenation of the parts at its places.
Places = tuple[Place, ...]


class Case:
    """One golden file, with the parameters that it leaves to another file."""

    def __init__(self, name: str) -> None:
        self.tensors = load_file(FOLDER / f"{name}.safetensors")
        base: str | None = json.loads((FOLDER / "index.json").read_text())[name]["params_from"]
        self.params: dict[str, Tensor] = {} if base is None else dict(case(base).params)
        self.params |= self.group("param/")
        self.grads = self.group("grad/param/") or self.group("grad/")

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def group(self, prefix: str) -> dict[str, Tensor]:
        """The tensors below a prefix, by the rest of their names."""
        return {
            name.removeprefix(prefix): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(prefix)
        }


@cache
def case(name: str) -> Case:
    """A golden case, read once."""
    return Case(name)


def load(module: nn.Module, golden: Mapping[str, Tensor], places: Mapping[str, Places]) -> None:
    """Copy golden parameters into a module; every parameter of the module must be set.

    `places` says where each lies; what it does not name is not looked at.
    """
    own = dict(module.named_parameters())
    missing = set(own)
    with torch.no_grad():
        for name, parts in places.items():
            begin = 0
            for part in parts:
                target = own[part.name][part.rows]
                rows = target.size(0)
                source = golden[name] if len(parts) == 1 else golden[name][begin : begin + rows]
                target.copy_(source.reshape(target.shape))
                begin += rows
                missing.discard(part.name)
    assert not missing, f"no golden value for {sorted(missing)}"


def check_gradients(
    module: nn.Module, golden: Mapping[str, Tensor], places: Mapping[str, Places], tolerance: float
) -> float:
    """Compare the gradients of a module with golden ones; the largest deviation."""
    own = {name: parameter.grad for name, parameter in module.named_parameters()}
    worst = 0.0
    assert golden
    unknown = [name for name in golden.keys() - places.keys() if golden[name].any()]
    assert not unknown, f"no place for {sorted(unknown)}"
    for name, parts in places.items():
        if name not in golden:
            continue
        found = torch.cat([gradient_of(own, part) for part in parts])
        expected = golden[name]
        if expected.dim() > 1 and expected.size(0) < found.size(0):
            found = found[::16]  # the file holds every 16th row
        deviation = (found.reshape(expected.shape) - expected).abs().max().item()
        assert deviation < tolerance, f"gradient of {name} deviates by {deviation:.1e}"
        worst = max(worst, deviation)
    return worst


def gradient_of(gradients: Mapping[str, Tensor | None], place: Place) -> Tensor:
    """The gradient at a place."""
    gradient = gradients[place.name]
    assert gradient is not None, f"{place.name} has no gradient"
    return gradient[place.rows]


def check_module(golden: Case, module: Callable[[Tensor], Tensor]) -> Tensor:
    """Check what a module makes of the case's only input, and the gradient there; gives that input."""
    x = golden["in/x"].clone().requires_grad_()
    y = module(x)
    assert deviation(y, golden["out/y"]) < OUTPUT_TOLERANCE
    (y * golden["cot/R"]).sum().backward()
    assert x.grad is not None
    assert deviation(x.grad, golden["grad/in/x"]) < GRADIENT_TOLERANCE
    return x


def deviation(found: Tensor, expected: Tensor) -> float:
    """Largest absolute difference of two tensors of one shape."""
    assert found.shape == expected.shape
    return (found - expected).abs().max().item()


_GATES = {"i": 0, "f": 1, "o": 2}


def depth_lstm(golden: Mapping[str, Tensor], dim: int, units_per_layer: int = 1) -> dict[str, Places]:
    """Places of the golden depth-wise LSTM parameters in a connection.

    `gate1.W_f` is of the gates of layer 2; with two units a layer, `gateB1` are those of its second unit.
    """
    places: dict[str, Places] = {}
    for name in golden:
        part, field = name.split(".", 1)
        found = re.fullmatch(r"(gate|hid)(B?)(\d*)", part)
        if found is None:
            continue
        number = units_per_layer * int(found[3] or 0) + (1 if found[2] else 0)
        places[name] = (
            _gate_place(field, f"gates.{number}", dim)
            if found[1] == "gate"
            else _hidden_place(field, f"hiddens.{number}"),
        )
    return places


def _gate_place(field: str, unit: str, dim: int) -> Place:
    """`W_i`, `b_i`, `LN_i.w` or `LN_i.b`; likewise f and o."""
    kind, rest = field.split("_", 1)
    gate = _GATES[rest[0]]
    if kind == "LN":
        return Place(f"{unit}.norm.{'weight' if rest.endswith('.w') else 'bias'}", gate)
    return Place(f"{unit}.linear.{'weight' if kind == 'W' else 'bias'}", slice(gate * dim, (gate + 1) * dim))


def _hidden_place(field: str, unit: str) -> Place:
    """`W_h`, `b_h`, `LN_h.w`, ... of one layer; `W_h1`, ..., `W_h2` of two."""
    if field.startswith("LN"):
        return Place(f"{unit}.norm.{'weight' if field.endswith('.w') else 'bias'}")
    layer = "output" if field.endswith("2") else "input"
    return Place(f"{unit}.{layer}.{'weight' if field.startswith('W') else 'bias'}")


_NEUTRON_LAYER = re.compile(r"(enc|dec)\.nets\.(\d+)\.(attn|self_attn|cross_attn|ff)\.(.+)\.(weight|bias)")
_NEUTRON_PARTS = {
    "net.adaptor": "query_key_value",
    "net.query_adaptor": "query",
    "net.kv_adaptor": "key_value",
    "net.outer": "output",
    "net.0": "input",
    "net.2": "output",
}
_SIDES = {"enc": "encoder", "dec": "decoder"}
_FOLDERS = {
    "attn": "mixers",
    "self_attn": "mixers",
    "cross_attn": "crosses",
    "encoder_attn": "crosses",
    "ff": "feed_forwards",
}


def neutron(golden: Mapping[str, Tensor], *, post_norm: bool) -> dict[str, Places]:
    """Places of a whole Neutron model.

    In its default order (`post_norm`) each sub-layer begins with the norm that closes the one before here.
    """
    fixed = {
        "enc.wemb.weight": "source_embedding.table.weight",
        "dec.wemb.weight": "target_embedding.table.weight",
        "dec.classifier.bias": "head.bias",
        "enc.task_emb.weight": "source_embedding.language.table",
        "dec.task_emb.weight": "target_embedding.language.table",
        "enc.transo.weight": "transform.weight",
    }
    return {name: (Place(fixed.get(name) or _neutron_place(name, golden, post_norm)),) for name in golden}


def _neutron_place(name: str, golden: Mapping[str, Tensor], post_norm: bool) -> str:
    side = _SIDES[name[:3]]
    kinds = ["attn", "ff"] if side == "encoder" else ["self_attn", "cross_attn", "ff"]
    leaf = name.rsplit(".", 1)[1]
    if ".out_normer." in name:
        calls = len([other for other in golden if other.startswith(name[:3]) and ".normer." in other]) // 2
        return (
            f"{side}.connection.norms.{calls - 1}.{leaf}"
            if post_norm
            else f"{side}.connection.final_norm.{leaf}"
        )
    found = _NEUTRON_LAYER.fullmatch(name)
    assert found is not None, name
    layer, kind, part = int(found[2]), found[3], found[4]
    if part == "normer":
        call = layer * len(kinds) + kinds.index(kind)
        if post_norm and call == 0:
            return f"{side}.connection.embedding_norm.{leaf}"
        return f"{side}.connection.norms.{call - 1 if post_norm else call}.{leaf}"
    if part == "net.rel_pemb":
        return f"{side}.mixers.{layer}.relative.table"
    return f"{side}.{_FOLDERS[kind]}.{layer}.{_NEUTRON_PARTS[part]}.{leaf}"


_FAIRSEQ_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.+?)[._](weight|bias)")
_FAIRSEQ_NORMS = {
    "self_attn_layer_norm": 0,
    "encoder_attn_layer_norm": 1,
    "final_layer_norm": -1,
    "layer_norms.0": 0,
    "layer_norms.1": 1,
    "layer_norms.2": 2,
}
_FAIRSEQ_FIXED = {
    "encoder.embed_tokens": "source_embedding.table",
    "encoder.embed_positions": "source_embedding.positions",
    "decoder.embed_positions": "target_embedding.positions",
    "encoder.layernorm_embedding": "source_embedding.norm",
    "decoder.layernorm_embedding": "target_embedding.norm",
    "encoder.layer_norm": "encoder.connection.final_norm",
    "decoder.layer_norm": "decoder.connection.final_norm",
    "encoder.fusion_layer_norm": "encoder.fusion.norm",
}
_FAIRSEQ_WHOLE = {
    "encoder.encoder_fusion_weight": "encoder.fusion.gates",
    "decoder.decoder_fusion_weight": "decoder.fusion.gates",
    "decoder.loss_weight": "decoder.fusion.weights",
    "encoder.embed_positions.weight": "source_embedding.positions.table",
    "decoder.embed_positions.weight": "target_embedding.positions.table",
    "encoder.history.weight": "encoder.aggregation.mix",
    "decoder.history.weight": "decoder.aggregation.mix",
}


def fairseq(golden: Mapping[str, Tensor], dim: int, *, first_history_norm: int = 0) -> dict[str, Places]:
    """Places of a whole fairseq model, DLCL and GTrans included.

    `first_history_norm` is the entry of the history that norm number 0 belongs to.
    """
    return {name: _fairseq_places(name, dim, first_history_norm) for name in golden}


def _fairseq_places(name: str, dim: int, first_history_norm: int) -> Places:
    if name in _FAIRSEQ_WHOLE:
        return (Place(_FAIRSEQ_WHOLE[name]),)
    stem, leaf = name.rsplit(".", 1)
    if stem in _FAIRSEQ_FIXED:
        return (Place(f"{_FAIRSEQ_FIXED[stem]}.{leaf}"),)
    norm = re.fullmatch(r"(encoder|decoder)\.history\.layer_norms\.(\d+)", stem)
    if norm is not None:
        return (Place(f"{norm[1]}.aggregation.norms.{int(norm[2]) + first_history_norm}.{leaf}"),)
    found = _FAIRSEQ_LAYER.fullmatch(name)
    assert found is not None, name
    side, layer, part, leaf = found[1], int(found[2]), found[3], found[4]
    calls = 2 if side == "encoder" else 3
    if part in _FAIRSEQ_NORMS:
        return (Place(f"{side}.connection.norms.{layer * calls + _FAIRSEQ_NORMS[part] % calls}.{leaf}"),)
    if part in ("fc1", "fc2"):
        return (Place(f"{side}.feed_forwards.{layer}.{'input' if part == 'fc1' else 'output'}.{leaf}"),)
    kind, projection = part.split(".")
    return _fairseq_projection(f"{side}.{_FOLDERS[kind]}.{layer}", projection, leaf, dim)


def _fairseq_projection(module: str, projection: str, leaf: str, dim: int) -> Places:
    """Queries, keys and values are one matrix in old fairseq and three in later ones; here 3, or 1 and 2."""
    if projection == "out_proj":
        return (Place(f"{module}.output.{leaf}"),)
    thirds = {"q": slice(0, dim), "k": slice(dim, 2 * dim), "v": slice(2 * dim, 3 * dim)}
    if ".mixers." in module:
        whole = Place(f"{module}.query_key_value.{leaf}")
        return (whole if projection == "in_proj" else Place(whole.name, thirds[projection[0]]),)
    query, both = Place(f"{module}.query.{leaf}"), Place(f"{module}.key_value.{leaf}")
    halves = {"k": slice(0, dim), "v": slice(dim, 2 * dim)}
    if projection == "in_proj":
        return (query, both)
    return (query if projection == "q_proj" else Place(both.name, halves[projection[0]]),)
