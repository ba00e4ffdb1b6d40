"""Every choice of every socket: each member of the four tables, as it comes and with options of note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deepwire.config.choice import ChoiceTable
from deepwire.model.aggregations import AGGREGATIONS
from deepwire.model.connections import CONNECTIONS
from deepwire.model.fusions import FUSIONS
from deepwire.model.mixers import MIXERS
from deepwire.model.stack_spec import SIDES, Side

Options = Mapping[str, object]
SOCKETS = ("mixer", "connection", "aggregation", "fusion")
TABLES: Mapping[str, ChoiceTable] = {
    "mixer": MIXERS,
    "connection": CONNECTIONS,
    "aggregation": AGGREGATIONS,
    "fusion": FUSIONS,
}
# Options beside the defaults, by type. A type that is not named here is taken as it comes.
VARIANTS: Mapping[str, list[Options]] = {
    "self_attention": [{"relative": 2}, {"relative": 2, "relative_values": True}],
    "value_residual": [{"form": "learned", "relative": 2}, {"form": "first"}],
    "lime": [{"relative": 2, "relative_values": True}],
    "pre_norm": [{"residual": "normalised"}, {"mixer_norm": False, "final_norm": False}],
    "post_norm": [{"embedding_norm": True}, {"mixer_norm": False}],
    "depth_lstm": [
        {"share": "all", "merge": "two", "hidden": "gelu", "gate_norm": "joint"},
        {"final_norm": "both", "first_norm": "second_layer"},
        {"share": "none", "merge": "concat", "hidden": "one_layer", "bias": True},
        {"gate_scope": "model"},
        {"direct_path": True},
    ],
    "depth_rnn": [{"hidden": "one_layer"}],
    "rezero": [{"share": "none"}],
    "sdu": [{"form": "gated", "residual": "input"}, {"gate": "tanh", "layers": 2}],
    "runge_kutta": [
        {"order": 4},
        {"order": 3, "function": "layer", "third_order": "released"},
        {"combination": "learned", "weights": "vector"},
    ],
    "admin": [{"initial": "logarithmic"}],
    "resi_dual": [{"dual_scale": 0.5, "output_scale": 2.0}],
    "peri_ln": [{"embedding_norm": True, "output_gain": 0.5}],
    "layer_scale": [{"initial": 1.0, "final_norm": False}],
    "laurel": [
        {"weights": "sigmoid", "rank": 4},
        {"weights": "none", "rank": 2, "final_norm": False},
        {"earlier": 3},
    ],
    "delta": [{"final_norm": False}],
    "attn_res": [{"block": "full", "bias": 3.0}, {"block": 2, "sources": "streams", "bias": 3.0}],
    "hyper": [{"lanes": 3, "lane": "layer"}, {"dynamic": False}],
    "frac": [{"fractions": 4}, {"dynamic": False}],
    "mhc_lite": [{"lanes": 3}],
    "mhc": [{"lanes": 3, "rounds": 3, "end": "head"}],
    "average_attention": [{"feed_forward": "none"}],
    "merged_attention": [{"average_value": "own"}],
    "mhplstm": [
        {"hidden": "one_layer", "norms": "joint", "initial_cell": "zero", "heads": 2},
        {"gates": "two_layer", "norms": "joint"},
    ],
    "luna": [{"length": 2, "tie": False, "pack_heads": 2}],
    "ssru": [{"output_matrix": True}],
    "min_gru": [{"expansion": 1.5, "output_matrix": True}],
    "min_lstm": [{"expansion": 2.0, "output_matrix": True}],
    "gla": [{"heads": 2, "expand_key": 1.0, "expand_value": 2.0, "gate_divisor": 1.0}],
    "mlstm": [{"heads": 2}],
    "mamba2": [{"heads": 2, "expand": 1.0, "state_size": 3, "convolution": 2}],
    "gated_deltanet": [{"convolution": None, "negative_eigenvalues": True, "heads": 2}],
    "per_layer": [{"mixers": ["ssru", {"type": "self_attention", "relative": 2}, "mlstm"]}],
    "ln_lstm": [{"gate_norm": "joint", "bias": True}],
    "atr": [{"carried": "product"}],
    "hierarchical": [{"block": 1, "block_input": False}],
    "dense": [{"weights": "sum", "window": 2}],
    "dwa": [{"dilation": 2, "period": 2}],
    "mudd": [{"last_expansion": 4}, {"ways": 4}],
    "dynamic_combination": [{"maps": 1}],
    "dynamic_routing": [{"capsules": 4, "input_maps": 1}],
    "em_routing": [{"capsules": 4, "output": "mean", "norm": False}],
    "mlrf": [{"form": "linear"}, {"form": "feed_forward"}],
    "dlcl": [
        {"norm": "after", "weights": "vector", "softmax": True},
        {"window": 2, "embedding_norm": "twice", "initial": "one"},
    ],
    "groups": [{"size": 2, "representation": "mean"}, {"size": 1, "probabilities": "geometric"}],
}


# What each target language may have its own of; None: a model of one language pair.
LANGUAGES: list[Options | None] = [
    None,
    {"norm": True},
    {"norm": True, "transform": "identity"},
    {"norm": True, "transform": "released", "embedding": "both", "output_bias": True},
]


# Of what sub-layers are made, beside the defaults.
PARTS: list[Options] = [
    {"inner_norm": True},
    {"norm": "rms", "activation": "swiglu", "positions": "rotary", "key_value_heads": 2, "qk_norm": True},
    {"positions": {"type": "rotary", "layout": "interleaved"}, "key_value_heads": 1, "inner_norm": True},
    {"norm": "rms", "activation": "geglu"},
    {"qk_norm": True, "key_value_heads": 2},
]


def members(socket: str) -> dict[str, type]:
    """The members of a socket's table by the name that a run file uses."""
    return dict(TABLES[socket].own)


def choices(socket: str, side: Side) -> list[Options]:
    """What may stand at a socket of one side."""
    return [
        {"type": name, **options}
        for name, member in members(socket).items()
        if side in getattr(member, "sides", (side,))
        for options in ({}, *VARIANTS.get(name, ()))
    ]


def model_settings(
    encoder: Mapping[str, Options], decoder: Mapping[str, Options], languages: Options | None = None
) -> dict[str, object]:
    """The settings of a model of two stacks; where one needs a partner, the other is made to fit."""
    encoder, decoder = dict(encoder), dict(decoder)
    for one, other in ((decoder, encoder), (encoder, decoder)):
        if one["connection"]["type"] == "collaboration":
            other["connection"] = one["connection"]
    wide = decoder["connection"]["type"] == "rnmt"
    return {
        "embeddings": {"tie": "none" if wide else "all"},
        "encoder": encoder,
        "decoder": decoder,
        **({} if languages is None else {"languages": languages}),
    }


def of_both_sides(socket: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Each member of a socket on every side that it is for, beside ordinary choices and in few layers."""
    layers = 3 if socket == "fusion" else 2
    for name in members(socket):
        either: dict[Side, Any] = {side: beside_the_ordinary(socket, name, side) for side in SIDES}
        plain: Any = either["encoder"] or either["decoder"]
        stacks = {side: {**(either[side] or plain)[side], "layers": layers} for side in SIDES}
        yield name, model_settings(stacks["encoder"], stacks["decoder"])


def beside_the_ordinary(socket: str, name: str, side: Side) -> dict[str, object] | None:
    """A member as it comes beside ordinary choices; None where it does not work on that side."""
    plain = {"mixer": "self_attention", "connection": "pre_norm", "aggregation": "last", "fusion": "top"}
    ordinary = {each: {"type": kind} for each, kind in plain.items()}
    if {"type": name} not in choices(socket, side):
        return None
    changed = {**ordinary, socket: {"type": name}}
    if name == "rnmt":  # made of recurrent mixers only
        changed["mixer"] = {"type": "ln_lstm"}
    pair = (changed, ordinary) if side == "encoder" else (ordinary, changed)
    return model_settings(*pair)
