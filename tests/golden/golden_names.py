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
DIM = 32
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


def rezero_places(golden: Mapping[str, Tensor]) -> dict[str, Places]:
    """Places of the ReZero model, whose layers are torch's and whose scale is called resweight."""
    fixed = {"embed.weight": "encoder.embed_tokens.weight"}
    renamed = {
        name: fixed.get(name)
        or name.replace("multihead_attn", "encoder_attn").replace("linear1", "fc1").replace("linear2", "fc2")
        for name in golden
    }
    plain = fairseq({new: golden[old] for old, new in renamed.items() if "resweight" not in old}, DIM)
    places = {old: plain[new] for old, new in renamed.items() if new in plain}
    for name in renamed.keys() - places.keys():
        side, _, layer, _ = name.split(".")
        places[name] = (Place(f"{side}.connection.alpha", slice(int(layer), int(layer) + 1)),)
    return places


def ode_places(golden: Mapping[str, Tensor]) -> dict[str, Places]:
    """Places of a Runge-Kutta model: those of a pre-norm one, the combination, and relative positions."""
    fixed = {
        "encoder.gate_linear.weight": "encoder.connection.gate.weight",
        "encoder.gate_linear.bias": "encoder.connection.gate.bias",
        "encoder.alpha": "encoder.connection.weights",
    }
    own = {name: (Place(place),) for name, place in fixed.items() if name in golden}
    for name in golden:
        table = re.fullmatch(r"(\w+)\.layers\.(\d+)\.self_attn\.relative_position_keys", name)
        if table:
            own[name] = (Place(f"{table[1]}.mixers.{table[2]}.relative.table"),)
    rest = {name: value for name, value in golden.items() if name not in own}
    # The history has no norm for the embedding and counts from the first layer.
    return {**fairseq(rest, DIM, first_history_norm=1), **own}


def sdu_places(golden: Mapping[str, Tensor]) -> dict[str, Places]:
    """Places of a whole model with units: Neutron's, and one unit for each call."""
    plain = neutron({name: value for name, value in golden.items() if ".sdu." not in name}, post_norm=False)
    for name in golden.keys() - plain.keys():
        # The unit of a sub-layer lies where its norm does.
        norm = plain[name.replace(".sdu.0.", ".normer.")][0].name
        plain[name] = (Place(norm.replace(".norms.", ".units.")),)
    return plain


COMBINER = {
    "net.0.weight": "input.weight",
    "net.0.bias": "input.bias",
    "net.2.weight": "output.weight",
    "net.2.bias": "output.bias",
    "out_normer.weight": "norm.weight",
    "out_normer.bias": "norm.bias",
}


BLOCKS = re.compile(r"(enc|dec)\.nets\.(\d+)\.(nets\.(\d+)|combiner)\.(.+)")


def hierarchical_places(golden: Mapping[str, Tensor], block: int = 2) -> dict[str, Places]:
    """Places of a whole Neutron model with blocks, whose layers are counted anew in every block."""
    plain: dict[str, str] = {}
    places: dict[str, Places] = {}
    for name in golden:
        found = BLOCKS.fullmatch(name)
        if found is None:
            plain[name] = name
        elif found[4] is None:
            side = {"enc": "encoder", "dec": "decoder"}[found[1]]
            leaf = COMBINER[found[5]]
            places[name] = (Place(f"{side}.aggregation.combiners.{found[2]}.{leaf}"),)
        else:
            plain[name] = f"{found[1]}.nets.{int(found[2]) * block + int(found[4])}.{found[5]}"
    inside = neutron({flat: golden[name] for name, flat in plain.items()}, post_norm=False)
    return places | {name: inside[flat] for name, flat in plain.items()}


def transparent_places(golden: Mapping[str, Tensor]) -> dict[str, Places]:
    """Places of a model with transparent attention, of fairseq's layers or of Neutron's.

    Neutron normalises the embedding, under the name of a final norm, which its post-norm layers lack.
    """
    weights = (Place("encoder.fusion.weights"),)
    if "encoder.ta_weight" in golden:
        plain = {key: tensor for key, tensor in golden.items() if key != "encoder.ta_weight"}
        return fairseq(plain, DIM) | {"encoder.ta_weight": weights}
    plain = {key: tensor for key, tensor in golden.items() if not key.startswith("enc.tattn")}
    places = neutron(plain, post_norm=True) | {"enc.tattn_w": weights}
    for leaf in ("weight", "bias"):
        places[f"enc.out_normer.{leaf}"] = (Place(f"encoder.connection.embedding_norm.{leaf}"),)
        for call in range(4):
            part = f"enc.nets.{call // 2}.{('attn', 'ff')[call % 2]}.normer.{leaf}"
            places[part] = (Place(f"encoder.connection.norms.{call}.{leaf}"),)
    return places


_CELLS: Mapping[str, Mapping[str, str]] = {
    "LNLSTMCell": {"trans": "linear", "normer": "norm"},
    "ATRCell": {"t1": "input", "t2": "recurrent"},
    "GRUCell": {
        "trans": "gates",
        "transi": "input",
        "transh": "recurrent",
        "normer1": "gate_norm",
        "normer2": "norm",
    },
}


def places_of(kind: str, golden: Mapping[str, Tensor], ours: str = "", theirs: str = "") -> dict[str, Places]:
    """Places of a cell's parameters, whose names begin with `theirs` there and `ours` here."""
    places: dict[str, Places] = {}
    for name in golden:
        part, leaf = name.removeprefix(theirs).rsplit(".", 1)
        places[name] = (Place(f"{ours}{_CELLS[kind][part]}.{leaf}"),)
    return places


def sequence_places(
    kind: str, golden: Mapping[str, Tensor], ours: str = "", theirs: str = ""
) -> dict[str, Places]:
    """Places of a cell's parameters and of the learned initial state."""
    initial = {f"{theirs}init_hx": slice(0, 1), f"{theirs}init_cx": slice(1, 2)}
    inner = {name: tensor for name, tensor in golden.items() if name not in initial}
    places = places_of(kind, inner, f"{ours}cell.", f"{theirs}net.")
    return places | {name: (Place(f"{ours}initial", initial[name]),) for name in golden if name in initial}


def atr_places(golden: Mapping[str, Tensor]) -> dict[str, Places]:
    """ATR in the place of self-attention; the rest is an ordinary Neutron model."""
    places: dict[str, Places] = {}
    for layer in range(2):
        prefix = f"dec.nets.{layer}.net."
        own = {name: tensor for name, tensor in golden.items() if name.startswith(prefix)}
        places |= sequence_places("ATRCell", own, f"decoder.mixers.{layer}.", prefix)
    return places | neutron(
        {name: tensor for name, tensor in golden.items() if name not in places}, post_norm=False
    )


def rnmt_places(golden: Mapping[str, Tensor]) -> dict[str, Places]:
    """The RNMT+ decoder on Neutron's encoder."""
    places: dict[str, Places] = {}
    for layer, prefix in enumerate(("dec.flayer.", "dec.nets.0.")):
        own = {name: tensor for name, tensor in golden.items() if name.startswith(prefix)}
        places |= sequence_places("LNLSTMCell", own, f"decoder.mixers.{layer}.", prefix)
    fixed = {
        "dec.wemb.weight": "target_embedding.table.weight",
        "dec.classifier.weight": "head.table.weight",
        "dec.classifier.bias": "head.bias",
        "dec.out_normer.weight": "decoder.connection.norm.weight",
        "dec.out_normer.bias": "decoder.connection.norm.bias",
        "dec.attn.query_adaptor.weight": "decoder.crosses.0.query.weight",
        "dec.attn.kv_adaptor.weight": "decoder.crosses.0.key_value.weight",
        "dec.attn.outer.weight": "decoder.crosses.0.output.weight",
        "dec.projector.weight": "decoder.crosses.0.projection.weight",
    }
    places |= {name: (Place(ours),) for name, ours in fixed.items()}
    return places | neutron(
        {name: tensor for name, tensor in golden.items() if name not in places}, post_norm=False
    )


def merged_place(name: str) -> Places:
    """Where a parameter of a decoder layer of two sub-layers lies."""
    found = re.fullmatch(r"decoder\.layers\.(\d)\.(.+)\.(weight|bias)", name)
    assert found is not None, name
    layer, part, leaf = int(found[1]), found[2], found[3]
    if part == "matt_layer_norm":
        return (Place(f"decoder.connection.norms.{2 * layer}.{leaf}"),)
    if part == "final_layer_norm":
        return (Place(f"decoder.connection.norms.{2 * layer + 1}.{leaf}"),)
    parts = {
        "fc1": f"feed_forwards.{layer}.input",
        "fc2": f"feed_forwards.{layer}.output",
        "matt.q_proj": f"mixers.{layer}.query",
        "matt.k_proj": f"mixers.{layer}.key",
        "matt.v_proj": f"mixers.{layer}.value",
        "matt.out_proj": f"mixers.{layer}.output",
    }
    return (Place(f"decoder.{parts[part]}.{leaf}"),)


def merged_places(golden: Mapping[str, Tensor]) -> dict[str, Places]:
    """Places of a fairseq model whose decoder has merged attention."""
    places = fairseq({key: value for key, value in golden.items() if key.startswith("encoder.")}, DIM)
    places |= {key: merged_place(key) for key in golden if key.startswith("decoder.")}
    return places | {"embed": (Place("source_embedding.table.weight"),)}


_COLLABORATION_FIXED = {
    "embed": "source_embedding.table.weight",
    "encoder.gru.weight_ih": "encoder.connection.summary.input.weight",
    "encoder.gru.bias_ih": "encoder.connection.summary.input.bias",
    "encoder.gru.weight_hh": "encoder.connection.summary.hidden.weight",
    "encoder.gru.bias_hh": "encoder.connection.summary.hidden.bias",
    "decoder.layer_norm.weight": "decoder.connection.final_norm.weight",
    "decoder.layer_norm.bias": "decoder.connection.final_norm.bias",
}
# Where the parts of layer {0} lie, by side; {1} and {2} are the numbers of its first and last norm.
_COLLABORATION = {
    "encoder": {
        "self_attn": "encoder.mixers.{0}",
        "context_attn": "encoder.connection.contexts.{0}",
        "self_attn_layer_norm": "encoder.connection.norms.{1}",
        "context_attn_layer_norm": "encoder.connection.context_norms.{0}",
        "final_layer_norm": "encoder.connection.norms.{2}",
        "w1": "encoder.connection.gates.{0}.own",
        "w2": "encoder.connection.gates.{0}.context",
        "fc1": "encoder.feed_forwards.{0}.input",
        "fc2": "encoder.feed_forwards.{0}.output",
    },
    "decoder": {
        "self_attn": "decoder.mixers.{0}",
        "encoder_attn": "decoder.crosses.{0}",
        "context_attn": "decoder.crosses.{0}.summary",
        "self_attn_layer_norm": "decoder.connection.norms.{1}",
        "encoder_attn_layer_norm": "decoder.connection.norms.{3}",
        "encoder_out_layer_norm": "decoder.crosses.{0}.block_norm",
        "context_attn_layer_norm": "decoder.crosses.{0}.summary_norm",
        "final_layer_norm": "decoder.connection.norms.{2}",
        "w1": "decoder.crosses.{0}.gate.own",
        "w2": "decoder.crosses.{0}.gate.context",
        "fc1": "decoder.feed_forwards.{0}.input",
        "fc2": "decoder.feed_forwards.{0}.output",
    },
}


def collaboration_place(name: str) -> Place:
    """Where a golden parameter lies."""
    if name in _COLLABORATION_FIXED:
        return Place(_COLLABORATION_FIXED[name])
    summary = re.fullmatch(r"encoder\.context_layer_norms\.(\d+)\.(weight|bias)", name)
    if summary is not None:
        return Place(f"encoder.connection.summary_norms.{summary[1]}.{summary[2]}")
    found = re.fullmatch(
        r"(encoder|decoder)\.layers\.(\d+)\.(\w+?)(?:\.([qkv]|out)_proj)?\.(weight|bias)", name
    )
    assert found is not None, name
    side, layer, leaf = found[1], int(found[2]), found[5]
    calls = 2 if side == "encoder" else 3
    first = calls * layer
    module = _COLLABORATION[side][found[3]].format(layer, first, first + calls - 1, first + 1)
    projection = found[4]
    if projection is None:
        return Place(f"{module}.{leaf}")
    if projection == "out":
        return Place(f"{module}.output.{leaf}")
    if ".mixers." in module:
        number = "qkv".index(projection)
        return Place(f"{module}.query_key_value.{leaf}", slice(number * DIM, (number + 1) * DIM))
    if projection == "q":
        return Place(f"{module}.query.{leaf}")
    number = "kv".index(projection)
    return Place(f"{module}.key_value.{leaf}", slice(number * DIM, (number + 1) * DIM))
