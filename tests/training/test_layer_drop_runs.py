"""LayerDrop and stochastic depth in whole runs: which layers, exact continuation, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.runfile import load_run_file
from deepwire.training.extras import LayerDrop, LayerDropConfig

DEPTHS = {"encoder": {"layers": 4}, "decoder": {"layers": 2}}
SHAPE = {"d_model": 8, "heads": 2, "feed_forward": 8, **DEPTHS}


def shares(seed: int = 1, updates: int = 2000, **settings: object) -> tuple[list[float], list[float]]:
    """How often each call of the encoder and of the decoder is dropped."""
    model = build_model(ModelConfig.model_validate(SHAPE), 12, 12)
    layer_drop = LayerDrop(LayerDropConfig.model_validate(settings), model, seed)
    counts = [[0] * len(stack.calls) for stack in model.stacks().values()]
    for update in range(1, updates + 1):
        layer_drop.before_update(update)
        for count, stack in zip(counts, (model.encoder, model.decoder), strict=True):
            for index in stack.dropped_calls:
                count[index] += 1
    encoder, decoder = ([one / updates for one in count] for count in counts)
    return encoder, decoder


def test_layers_are_dropped_as_often_as_asked_for() -> None:
    encoder, decoder = shares(encoder=0.2, decoder=0.5)
    assert encoder == pytest.approx([0.2] * 8, abs=0.03)
    assert decoder == pytest.approx([0.5] * 6, abs=0.04)
    assert encoder[::2] == encoder[1::2]  # a layer goes as a whole
    assert encoder[0] != encoder[2]


def test_the_probability_may_grow_with_depth() -> None:
    encoder, decoder = shares(encoder=0.4, depth="linear")
    assert encoder == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4], abs=0.04)
    assert decoder == [0] * 6


def test_scales_are_one_over_the_share_that_is_left() -> None:
    model = build_model(ModelConfig.model_validate(SHAPE), 12, 12)
    LayerDrop(LayerDropConfig(encoder=0.4, depth="linear", rescale=True), model, 1)
    assert model.encoder.call_scales == pytest.approx(
        [1 / 0.9, 1 / 0.9, 1 / 0.8, 1 / 0.8, 1 / 0.7, 1 / 0.7, 1 / 0.6, 1 / 0.6]
    )
    assert model.decoder.call_scales == pytest.approx([1] * 6)


RUN_FILE = """
data: {source: de, target: en, train: train}
model:
  encoder: {layers: 6}
  decoder: {layers: 2, connection: %s}
training:
  layer_drop: %s
"""


@pytest.mark.parametrize(
    ("connection", "drop", "words"),
    [
        ("rnmt", "0.2", "training.layer_drop.decoder: decoder.connection rnmt needs every layer"),
        ("{type: post_norm, mixer_norm: false}", "0.2", "decoder.connection post_norm needs every layer"),
        ("b2t", "{decoder: 0.2, unit: sublayer}", "unit: sublayer is for residual connections"),
        ("depth_lstm", "{decoder: 0.2, unit: sublayer}", "unit: sublayer is for residual connections"),
        ("depth_rnn", "{decoder: 0.2, rescale: true}", "rescale: true is for residual connections"),
        ("sdu", "{decoder: 0.2, rescale: true}", "decoder.connection sdu adds something else"),
        ("peri_ln", "{decoder: 0.2, rescale: true}", "decoder.connection peri_ln adds something else"),
    ],
)
def test_a_connection_that_needs_its_layers_is_refused(
    connection: str, drop: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(RUN_FILE % (connection, drop))
    fitting = ["model.embeddings.tie=inputs", "model.decoder.mixer=ln_lstm"] if connection == "rnmt" else []
    with pytest.raises(UsageError) as caught:
        load_run_file("run.yaml", fitting)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    load_run_file("run.yaml", [*fitting, "training.layer_drop=0"])
