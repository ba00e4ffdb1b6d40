"""Models as functions of tensors: what they compute, and that ONNX computes it too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from choices import PARTS
from onnx_check import (
    ALLOWED,
    Eager,
    drawn,
    drawn_alone,
    in_onnx,
    largest_difference,
    most_allowed,
)

from deepwire.convert.decoding_graphs import decoding_graphs
from deepwire.convert.graph_formats import plain_operations
from deepwire.convert.parity import in_float64
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import SIZE, small_model


def exact_difference(model: TranslationModel) -> float:
    """Of what the graphs compute, in float64, since some choices (EM routing) make much of rounding."""
    with in_float64(model) as exact:
        return largest_difference(exact, Eager(decoding_graphs(exact)))


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))]
)
def test_three_functions_make_any_model(seed: int) -> None:
    """Caches that grow, and hypotheses that are reordered by the host, change nothing."""
    assert exact_difference(small_model(drawn(seed), seed)) < 1e-9, drawn(seed)


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 20))]
)
def test_two_functions_make_any_decoder_alone(seed: int) -> None:
    """Source and first words of the target are read in one pass."""
    assert exact_difference(small_model(drawn_alone(seed), seed)) < 1e-7, drawn_alone(seed)


def test_rounds_of_recurrent_depth_are_in_the_graph() -> None:
    """As many as translation makes."""
    recurrence = {"prelude": 1, "coda": 1, "rounds": 2}
    model = small_model({"encoder": {"layers": 3, "recurrence": recurrence}, "decoder": {"layers": 1}})
    assert exact_difference(model) < 1e-9
    assert exact_difference(model.with_rounds(5)) < 1e-9


def test_a_language_model_has_no_source() -> None:
    config = ModelConfig.model_validate(
        {"architecture": "decoder_only", "d_model": 16, "heads": 2, "decoder": {"layers": 2, "mixer": "gru"}}
    )
    model = build_model(config, 0, SIZE).eval()
    prompt, _ = decoding_graphs(model)
    assert [leaf.name for leaf in prompt.inputs] == ["tokens"]
    assert exact_difference(model) < 1e-9


RECURRENT = {
    "encoder": {"layers": 1, "mixer": "gru", "connection": "depth_lstm"},
    "decoder": {"layers": 1, "mixer": {"type": "self_attention", "relative": 2, "relative_values": True}},
    "positions": "learned",
}


# With layers at one place, its variances are not much more than the 1e-8 that is added to them.
TINY_NUMBERS = {
    "encoder": {"layers": 2, "fusion": {"type": "em_routing", "capsules": 4, "norm": False}},
    "decoder": {"layers": 1, "mixer": {"type": "luna", "length": 2}},
}


# What goes through a prompt in another way than through whole sentences.
ALONE = ("gru", "average_attention", "mhplstm", "mlstm", "mamba2", "gated_deltanet", "self_attention")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(RECURRENT, id="loops"),
        pytest.param(TINY_NUMBERS, id="tiny-numbers"),
        pytest.param(PARTS[1], id="modern"),
        *(
            pytest.param(
                {"architecture": "decoder_only", "decoder": {"layers": 1, "mixer": mixer}},
                id=f"alone-{mixer}",
            )
            for mixer in ALONE
        ),
    ],
)
def test_onnx_computes_any_model(settings: Mapping[str, object], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = small_model(settings)
    difference = largest_difference(model, in_onnx(model, tmp_path))
    assert difference <= most_allowed(model, difference)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("MODELS", "40"))))
def test_onnx_computes_models_with_anything_at_every_socket(seed: int, tmp_path: Path) -> None:
    test_onnx_computes_any_model((drawn_alone if seed % 4 == 3 else drawn)(seed), tmp_path)


@pytest.mark.slow
def test_weights_of_each_head_stay_as_they_are_in_eight_bits(tmp_path: Path) -> None:
    """onnxruntime rounds matrices alone: MHPLSTM multiplies its heads by a batch of them."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = small_model({"encoder": {"layers": 1}, "decoder": {"layers": 1, "mixer": "mhplstm"}})
    difference = largest_difference(model, in_onnx(model, tmp_path, int8=True))
    assert ALLOWED < difference < 0.5


def test_tracing_leaves_the_model_and_the_process_as_they_were() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        model = small_model({"encoder": {"layers": 1}, "decoder": {"layers": 1}})
        with plain_operations(model):
            assert torch.get_float32_matmul_precision() == "highest"
            assert not any(parameter.requires_grad for parameter in model.parameters())
        assert torch.get_float32_matmul_precision() == "high"
        assert all(parameter.requires_grad for parameter in model.parameters())
    finally:
        torch.set_float32_matmul_precision("highest")
