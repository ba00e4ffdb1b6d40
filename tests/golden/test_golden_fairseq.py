"""Whole models against the authors' code of DLCL and GTrans, and the fairseq Transformer under them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from golden_names import (
    FAIRSEQ,
    OUTPUT_TOLERANCE,
    case,
    deviation,
    fairseq,
    load,
)
from torch import Tensor
from whole_models import FairseqModel

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel

DIM, PAD, VOCABULARY = 32, 1, 48
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


@pytest.fixture(params=list(CASES))
def loaded(request: pytest.FixtureRequest) -> FairseqModel:
    """A golden case, the model with its parameters, and where they lie."""
    return build(request.param)


def build(name: str, changed_decoder: Mapping[str, object] | None = None) -> FairseqModel:
    connection, both, decoder, changes = CASES[name]
    decoder = changed_decoder or decoder
    stack = {"layers": 4, "connection": connection, **both}
    config = ModelConfig.model_validate(
        {**FAIRSEQ, "encoder": stack, "decoder": {**stack, "layers": 3, **decoder}, **changes}
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
    return FairseqModel(golden, model, places)


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


def test_encoder_output(loaded: FairseqModel) -> None:
    """The file holds it for the same sentences padded on the left."""
    source = loaded.batch().source
    words = loaded.golden["in/src_tokens"] != PAD
    encoded = loaded.model.encode(source)[0][0]
    assert deviation(encoded[source != PAD], loaded.golden["act/enc_out"][words]) < OUTPUT_TOLERANCE


def test_outputs_and_gradients(loaded: FairseqModel) -> None:
    """Log-probabilities, both losses and gradients of a whole model."""
    loaded.check_outputs_and_gradients()


def test_stepwise_decoding_equals_the_full_pass(loaded: FairseqModel) -> None:
    """One token at a time gives the golden log-probabilities."""
    loaded.check_steps()


@pytest.mark.parametrize("name", ["gtrans_sparse", "gtrans_releasearch"])
def test_arithmetic_mixture(name: str) -> None:
    """The paper's mixture of the same groups: the weighted sum of their probabilities."""
    loaded = build(name, {"layers": 4, "fusion": {**MIXTURE, "probabilities": "arithmetic"}})
    batch = loaded.batch()
    found = loaded.model.log_probs(batch.source, batch.target).exp()
    expected = loaded.golden["out/mixture_prob"]
    assert deviation(found[batch.real], expected[batch.real]) < OUTPUT_TOLERANCE
