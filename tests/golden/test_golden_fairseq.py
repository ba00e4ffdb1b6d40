"""Whole models against the authors' code of DLCL and GTrans, and the fairseq Transformer under them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from golden_names import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    Case,
    Place,
    case,
    check_gradients,
    deviation,
    fairseq,
    load,
)
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translator import TranslationModel

DIM, PAD, VOCABULARY = 32, 1, 48
BASE: dict[str, object] = {
    "d_model": DIM,
    "heads": 4,
    "feed_forward": 64,
    "dropout": 0.0,
    "norm_eps": 1e-5,
    "bias": {"attention": True, "feed_forward": "both", "output": False},
    "positions": {"type": "sinusoidal", "layout": "halves", "first": 2},
    "embeddings": {"tie": "all"},
}
GROUPS = {"type": "groups", "size": 2}
MIXTURE = {**GROUPS, "representation": "last", "probabilities": "geometric"}
# Of the released architecture: learned positions, a norm on embeddings that are not scaled, GELU.
RELEASED = {
    "activation": "gelu",
    "positions": {"type": "learned", "first": 2},
    "max_length": 16,
    "embeddings": {"tie": "all", "scale": False, "norm": True},
}


def dlcl(**changes: object) -> dict[str, object]:
    """DLCL as released: the embedding's entry is not normalised."""
    return {"aggregation": {"type": "dlcl", "embedding_norm": "none", **changes}}


# Connection, settings of both stacks, those of the decoder alone, and those of the model.
Settings = tuple[str, Mapping[str, object], Mapping[str, object], Mapping[str, object]]
CASES: dict[str, Settings] = {
    "fairseq_postnorm": ("post_norm", {}, {}, {}),
    "fairseq_prenorm": ("pre_norm", {}, {}, {}),
    "dlcl_postnorm": ("post_norm", dlcl(), {}, {}),
    "dlcl_prenorm": ("pre_norm", dlcl(), {}, {}),
    "dlcl_prenorm_softmax": ("pre_norm", dlcl(softmax=True), {}, {}),
    "dlcl_prenorm_vector": ("pre_norm", dlcl(weights="vector"), {}, {}),
    "dlcl_prenorm_scalar4": ("pre_norm", dlcl(weights=4), {}, {}),
    "dlcl_prenorm_window2": ("pre_norm", dlcl(window=2, window_form="initial"), {}, {}),
    "dlcl_prenorm_fixed_avg": ("pre_norm", dlcl(learned=False), {}, {}),
    "dlcl_prenorm_nonorm": ("pre_norm", dlcl(norm="none"), {}, {}),
    "dlcl_prenorm_normembed": ("pre_norm", dlcl(embedding_norm="once"), {}, {}),
    "dlcl_postnorm_normembed": ("post_norm", dlcl(embedding_norm="twice"), {}, {}),
    "hist_dense_avg_prenorm": ("pre_norm", dlcl(learned=False), {}, {}),
    "hist_dense_avg_postnorm": ("post_norm", dlcl(learned=False), {}, {}),
    "gtrans_sparse": ("post_norm", {"fusion": GROUPS}, {"layers": 4, "fusion": MIXTURE}, {}),
    "gtrans_sparse_without_ensemble": (
        "post_norm",
        {"fusion": GROUPS},
        {"layers": 4, "fusion": {**GROUPS, "representation": "last", "combine": "average"}},
        {},
    ),
    "gtrans_last": ("post_norm", {"fusion": GROUPS}, {"layers": 4, "fusion": "top"}, {}),
    "gtrans_releasearch": ("post_norm", {"fusion": GROUPS}, {"layers": 4, "fusion": MIXTURE}, RELEASED),
}
Loaded = tuple[Case, TranslationModel, dict[str, tuple[Place, ...]]]


@pytest.fixture(params=list(CASES))
def loaded(request: pytest.FixtureRequest) -> Loaded:
    """A golden case, the model with its parameters, and where they lie."""
    return build(request.param)


def build(name: str, changed_decoder: Mapping[str, object] | None = None) -> Loaded:
    connection, both, decoder, changes = CASES[name]
    decoder = changed_decoder or decoder
    stack = {"layers": 4, "connection": connection, **both}
    config = ModelConfig.model_validate(
        {**BASE, "encoder": stack, "decoder": {**stack, "layers": 3, **decoder}, **changes}
    )
    model = build_model(config, VOCABULARY, VOCABULARY, pad_id=PAD)
    golden = case(name)
    # The dense history of the other code base counts its norms from the first layer, not from the embedding.
    places = fairseq(golden.params, DIM, first_history_norm=1 if name.startswith("hist") else 0)
    own = dict(model.named_parameters())
    unused = {key for key, parts in places.items() if any(part.name not in own for part in parts)}
    assert all(is_constant_here(key, golden.params, model) for key in unused), unused
    places = {key: parts for key, parts in places.items() if key not in unused}
    load(model, golden.params, places)
    return golden, model, places


def is_constant_here(name: str, golden: Mapping[str, Tensor], model: TranslationModel) -> bool:
    """Whether a golden parameter is one that is never trained: fixed weights, or the weight of one group.

    DLCL without norms inherits the norms of the file that its parameters come from.
    """
    if name == "decoder.loss_weight":
        return golden[name].numel() == 1
    if name.endswith("history.weight"):
        mix = model.get_submodule(name.split(".")[0]).aggregation.mix
        return deviation(mix, golden[name]) < 1e-6
    return ".history.layer_norms." in name


def test_outputs_and_gradients(loaded: Loaded) -> None:
    """Encoder output, log-probabilities, smoothed loss and gradients."""
    golden, model, places = loaded
    source, target = golden["in/src_tokens_rightpad"], golden["in/prev_output_tokens"]
    real = golden["in/target"] != PAD
    encoded = model.encode(source)[0][0]
    # The files hold the encoder's output of the same sentences padded on the left.
    expected = golden["act/enc_out"][golden["in/src_tokens"] != PAD]
    assert deviation(encoded[source != PAD], expected) < OUTPUT_TOLERANCE
    expected = golden.tensors.get("out/mixture_logprob")
    if expected is None:
        expected = golden["out/logits"].log_softmax(-1)
    assert deviation(model.log_probs(source, target)[real], expected[real]) < OUTPUT_TOLERANCE
    loss = model.loss(source, target, golden["in/target"], 0.1, "uniform")
    assert loss.tokens.item() == real.sum().item()
    assert loss.smoothed.item() == pytest.approx(golden["out/loss_sum"].item(), abs=1e-4)
    assert loss.nll.item() == pytest.approx(golden["out/nll_sum"].item(), abs=1e-4)
    loss.smoothed.backward()
    check_gradients(model, golden.grads, places, GRADIENT_TOLERANCE)


def test_stepwise_decoding_equals_the_full_pass(loaded: Loaded) -> None:
    """One token at a time gives the golden log-probabilities."""
    golden, model, _ = loaded
    target, real = golden["in/prev_output_tokens"], golden["in/target"] != PAD
    expected = golden.tensors.get("out/mixture_logprob")
    if expected is None:
        expected = golden["out/logits"].log_softmax(-1)
    with torch.no_grad():
        state = model.start(golden["in/src_tokens_rightpad"], target.size(1))
        for position in range(target.size(1)):
            found, state = model.step(target[:, position], state)
            here = real[:, position]
            assert deviation(found[here], expected[:, position][here]) < OUTPUT_TOLERANCE


@pytest.mark.parametrize("name", ["gtrans_sparse", "gtrans_releasearch"])
def test_arithmetic_mixture(name: str) -> None:
    """The paper's mixture of the same groups: the weighted sum of their probabilities."""
    golden, model, _ = build(name, {"layers": 4, "fusion": {**MIXTURE, "probabilities": "arithmetic"}})
    real = golden["in/target"] != PAD
    found = model.log_probs(golden["in/src_tokens_rightpad"], golden["in/prev_output_tokens"]).exp()
    assert deviation(found[real], golden["out/mixture_prob"][real]) < OUTPUT_TOLERANCE
