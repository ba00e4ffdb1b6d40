"""Contextual collaboration against an independent implementation of its equations."""

from __future__ import annotations

import re

import pytest
from golden_names import (
    FAIRSEQ,
    Place,
    case,
    load,
)
from whole_models import FairseqModel

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

DIM, PAD, VOCABULARY = 32, 1, 48
SETTINGS: dict[str, object] = {
    **FAIRSEQ,
    "encoder": {"layers": 4, "connection": "collaboration", "fusion": "blocks"},
    "decoder": {"layers": 2, "connection": "collaboration"},
}
FIXED = {
    "embed": "source_embedding.table.weight",
    "encoder.gru.weight_ih": "encoder.connection.summary.input.weight",
    "encoder.gru.bias_ih": "encoder.connection.summary.input.bias",
    "encoder.gru.weight_hh": "encoder.connection.summary.hidden.weight",
    "encoder.gru.bias_hh": "encoder.connection.summary.hidden.bias",
    "decoder.layer_norm.weight": "decoder.connection.final_norm.weight",
    "decoder.layer_norm.bias": "decoder.connection.final_norm.bias",
}
# Where the parts of layer {0} lie, by side; {1} and {2} are the numbers of its first and last norm.
PARTS = {
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


def place(name: str) -> Place:
    """Where a golden parameter lies."""
    if name in FIXED:
        return Place(FIXED[name])
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
    module = PARTS[side][found[3]].format(layer, first, first + calls - 1, first + 1)
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


@pytest.fixture
def loaded() -> FairseqModel:
    """The golden case, the model with its parameters, and where they lie."""
    model = build_model(ModelConfig.model_validate(SETTINGS), VOCABULARY, VOCABULARY, pad_id=PAD)
    golden = case("own_msc_prenorm")
    places = {name: (place(name),) for name in golden.params}
    load(model, golden.params, places)
    return FairseqModel(golden, model, places)


def test_outputs_and_gradients(loaded: FairseqModel) -> None:
    """Log-probabilities, both losses and gradients; the encoder gives a pair of vectors for each layer."""
    results, _ = loaded.model.encode(loaded.batch().source)
    assert [result.size(-1) for result in results] == [2 * DIM] * 2
    loaded.check_outputs_and_gradients()


def test_stepwise_decoding_equals_the_full_pass(loaded: FairseqModel) -> None:
    """One token at a time gives the golden log-probabilities."""
    loaded.check_steps()
