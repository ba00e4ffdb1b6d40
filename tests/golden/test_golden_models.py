"""Whole models against the code of their authors: outputs, losses, gradients, steps, searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import pytest
import torch
from golden_names import (
    DIM,
    FAIRSEQ,
    OUTPUT_TOLERANCE,
    SMALL,
    Place,
    Places,
    atr_places,
    case,
    collaboration_place,
    deviation,
    fairseq,
    hierarchical_places,
    load,
    merged_places,
    neutron,
    ode_places,
    rezero_places,
    rnmt_places,
    sdu_places,
    transparent_places,
)
from test_golden_mhplstm import by_our_names
from torch import Tensor
from whole_models import FairseqModel, GoldenModel, NeutronModel

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context

PAD, WORDS, NEUTRON_WORDS, LANGUAGES = 1, 48, 40, 3
Find = Callable[[Mapping[str, Tensor]], dict[str, Places]]
Stack = Mapping[str, object]


def fairseq_model(
    name: str, stacks: tuple[Stack, Stack], find: Find | None = None, changes: Stack = MappingProxyType({})
) -> FairseqModel:
    """A case in fairseq's conventions, by default of 4 and 3 layers.

    Cases share files of parameters: what a model lacks must be a norm, a gate or a weight that it fixes.
    """
    encoder, decoder = {"layers": 4, **stacks[0]}, {"layers": 3, **stacks[1]}
    config = ModelConfig.model_validate({**FAIRSEQ, "encoder": encoder, "decoder": decoder, **changes})
    model = build_model(config, WORDS, WORDS, pad_id=PAD)
    golden = case(name)
    # The dense history of the ODE code counts its norms from the first layer, not from the embedding.
    first = 1 if name.startswith("hist") else 0
    places = find(golden.params) if find else fairseq(golden.params, DIM, first_history_norm=first)
    own = dict(model.named_parameters())
    unused = {key for key, parts in places.items() if any(part.name not in own for part in parts)}
    fixed = ("history.", ".gate_linear.", "decoder.loss_weight")
    assert all(any(each in key for each in fixed) for key in unused), unused
    places = {key: parts for key, parts in places.items() if key not in unused}
    load(model, golden.params, places)
    return FairseqModel(golden, model, places)


def both(connection: object, *, decoder: Stack | None = None, **stack: object) -> tuple[Stack, Stack]:
    """Settings of both stacks, and what the decoder has otherwise."""
    settings = {"connection": connection, **stack}
    return settings, {**settings, **(decoder or {})}


def dlcl(**changes: object) -> dict[str, object]:
    """DLCL as released: the embedding's entry is not normalised."""
    return {"type": "dlcl", "embedding_norm": "none", **changes}


DENSE = {"type": "dense", "embedding_norm": "none"}
GROUPS = {"type": "groups", "size": 2}
MIXTURE = {**GROUPS, "representation": "last", "probabilities": "geometric"}
AVERAGED = {**GROUPS, "representation": "last", "combine": "average"}
# GTrans' released architecture: learned positions, a norm on embeddings that are not scaled, GELU.
RELEASED = {
    "activation": "gelu",
    "positions": {"type": "learned", "first": 2},
    "max_length": 16,
    "embeddings": {"tie": "all", "scale": False, "norm": True},
}


def gtrans(fusion: object) -> tuple[Stack, Stack]:
    return both("post_norm", fusion=GROUPS, decoder={"layers": 4, "fusion": fusion})


def ode(connection: Mapping[str, object], **stack: object) -> tuple[Stack, Stack]:
    """Runge-Kutta blocks as released, beside a pre-norm decoder."""
    form = {"type": "runge_kutta", "function": "layer", **connection}
    return both(form, **stack, decoder={"connection": "pre_norm"})


RELATIVE = {"type": "self_attention", "relative": 3, "relative_table": "full"}
FAIRSEQ_CASES: dict[str, tuple[Stack, Stack]] = {
    "fairseq_postnorm": both("post_norm"),
    "fairseq_prenorm": both("pre_norm"),
    "dlcl_postnorm": both("post_norm", aggregation=dlcl()),
    "dlcl_prenorm": both("pre_norm", aggregation=dlcl()),
    "dlcl_prenorm_softmax": both("pre_norm", aggregation=dlcl(softmax=True)),
    "dlcl_prenorm_vector": both("pre_norm", aggregation=dlcl(weights="vector")),
    "dlcl_prenorm_scalar4": both("pre_norm", aggregation=dlcl(weights=4)),
    "dlcl_prenorm_window2": both("pre_norm", aggregation=dlcl(window=2, window_form="initial")),
    "dlcl_prenorm_fixed_avg": both("pre_norm", aggregation=dlcl(learned=False)),
    "dlcl_prenorm_nonorm": both("pre_norm", aggregation=dlcl(norm="none")),
    "dlcl_prenorm_normembed": both("pre_norm", aggregation=dlcl(embedding_norm="once")),
    "dlcl_postnorm_normembed": both("post_norm", aggregation=dlcl(embedding_norm="twice")),
    "hist_dense_avg_prenorm": both("pre_norm", aggregation=dlcl(learned=False)),
    "hist_dense_avg_postnorm": both("post_norm", aggregation=dlcl(learned=False)),
    "gtrans_sparse": gtrans(MIXTURE),
    "gtrans_sparse_without_ensemble": gtrans(AVERAGED),
    "gtrans_last": gtrans("top"),
}
ODE_CASES = {
    "ode_rk2_gate": ode({}),
    "ode_rk2_standard": ode({"combination": "fixed"}),
    "ode_rk2_alpha": ode({"combination": "learned"}),
    "ode_rk3_ascoded": ode({"order": 3, "third_order": "released"}),
    "ode_rk2_gate_dlcl_rpr": ode({}, aggregation=dlcl(), mixer=RELATIVE),
}
# Dense residual connections are DLCL with weights of 1/N.
DENSE_CASES = {
    "hist_dense_avg_prenorm": "pre_norm",
    "hist_dense_avg_postnorm": "post_norm",
    "dlcl_prenorm_fixed_avg": "pre_norm",
}
MERGED = both("post_norm", decoder={"mixer": "merged_attention"})
TRANSPARENT = both("post_norm", fusion="transparent", decoder={"fusion": "top"})
COLLABORATION = both("collaboration", fusion="blocks", decoder={"layers": 2, "fusion": "top"})


def collaboration_places(golden: Mapping[str, Tensor]) -> dict[str, Places]:
    return {name: (collaboration_place(name),) for name in golden}


NORMALISED = {"type": "pre_norm", "residual": "normalised"}
UNPOSITIONED = {"positions": "none", "scale_embedding": False}
NORMED_EMBEDDING = {"type": "post_norm", "embedding_norm": True}
TIED = {"embeddings": {"tie": "output"}}
POST = partial(neutron, post_norm=True)


def neutron_model(
    name: str, stacks: tuple[Stack, Stack], find: Find, language: bool = False, **changes: object
) -> NeutronModel:
    """A case of Neutron, of 2 and 2 layers."""
    golden = case(name)
    encoder, decoder = ({"layers": 2, **stack} for stack in stacks)
    config = ModelConfig.model_validate({**SMALL, **TIED, "encoder": encoder, "decoder": decoder, **changes})
    model = build_model(config, NEUTRON_WORDS, NEUTRON_WORDS, languages=LANGUAGES if language else 0)
    places = find(golden.params)
    load(model, golden.params, places)
    if not language:
        return NeutronModel(golden, model, places)
    # The batch has one target language; the gradients of the others are zero.
    (number,) = golden.grads["dec.task_emb.weight"].abs().amax(1).nonzero().flatten().tolist()
    return NeutronModel(golden, model, places, torch.full((len(golden["in/src"]),), number))


ATR = {"mixer": {"type": "atr", "carried": "product"}, "connection": {**NORMALISED, "mixer_norm": False}}
RNMT = {"mixer": {"type": "ln_lstm", "gate_norm": "joint"}, "connection": "rnmt"}
HIERARCHICAL = both(
    {**NORMALISED, "final_norm": False}, aggregation={"type": "hierarchical", "block": 2}, layers=4
)
TRANSPARENT_NEUTRON = both(NORMED_EMBEDDING, fusion="transparent", decoder={"fusion": "top"})
ALL_OF_LANGUAGES = {"norm": True, "transform": "released", "embedding": "both", "output_bias": True}
PRE = partial(neutron, post_norm=False)
BIASES = {"attention": True, "feed_forward": "both"}
MODELS: dict[str, Callable[[], GoldenModel]] = {
    **{name: partial(fairseq_model, name, stacks) for name, stacks in FAIRSEQ_CASES.items()},
    **{
        f"{name} as dense": partial(fairseq_model, name, both(connection, aggregation=DENSE))
        for name, connection in DENSE_CASES.items()
    },
    "gtrans_releasearch": partial(fairseq_model, "gtrans_releasearch", gtrans(MIXTURE), changes=RELEASED),
    "rezero": partial(fairseq_model, "rezero", both("rezero"), rezero_places),
    **{name: partial(fairseq_model, name, stacks, ode_places) for name, stacks in ODE_CASES.items()},
    "own_matt_postnorm": partial(fairseq_model, "own_matt_postnorm", MERGED, merged_places),
    "own_ta_postnorm": partial(fairseq_model, "own_ta_postnorm", TRANSPARENT, transparent_places),
    "own_msc_prenorm": partial(fairseq_model, "own_msc_prenorm", COLLABORATION, collaboration_places),
    "nmt_std_v1_bias": partial(neutron_model, "nmt_std_v1_bias", both(NORMED_EMBEDDING), POST, bias=BIASES),
    "nmt_std_v2": partial(neutron_model, "nmt_std_v2", both("pre_norm"), PRE),
    "nmt_std_v2_rel3": partial(
        neutron_model,
        "nmt_std_v2_rel3",
        both("pre_norm", mixer={"type": "self_attention", "relative": 3}),
        PRE,
    ),
    "nmt_glu": partial(neutron_model, "nmt_glu", both(NORMED_EMBEDDING), POST, activation="glu"),
    "nmt_sdu": partial(neutron_model, "nmt_sdu", both("sdu"), sdu_places),
    "nmt_hier": partial(neutron_model, "nmt_hier", HIERARCHICAL, hierarchical_places),
    "nmt_ta": partial(neutron_model, "nmt_ta", TRANSPARENT_NEUTRON, transparent_places),
    "nmt_atr_fn": partial(
        neutron_model, "nmt_atr_fn", both(NORMALISED, decoder={**UNPOSITIONED, **ATR}), atr_places
    ),
    "nmt_rnmt": partial(
        neutron_model,
        "nmt_rnmt",
        both(NORMALISED, decoder={**UNPOSITIONED, **RNMT}),
        rnmt_places,
        embeddings={"tie": "none"},
    ),
    "nmt_mulang": partial(
        neutron_model, "nmt_mulang", both(NORMED_EMBEDDING), POST, True, languages=ALL_OF_LANGUAGES
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_whole_model(name: str) -> None:
    """Log-probabilities, losses, every gradient, one token at a time, greedy choices and scores of beams."""
    MODELS[name]().check()


def test_mhplstm_in_the_decoder() -> None:
    """Its parameters are arranged otherwise, so gradients are compared by our names."""
    golden = case("nmt_hplstm_fn")
    decoder = {
        "layers": 2,
        "mixer": {"type": "mhplstm", "norms": "joint"},
        "connection": {**NORMALISED, "mixer_norm": False},
        **UNPOSITIONED,
    }
    stacks = {"encoder": {"layers": 2, "connection": NORMALISED}, "decoder": decoder}
    model = build_model(ModelConfig.model_validate({**SMALL, **TIED, **stacks}), NEUTRON_WORDS, NEUTRON_WORDS)
    arranged = by_our_names(golden.params)
    places = {name: (Place(name),) for name in arranged}
    load(model, arranged, places)
    loaded = NeutronModel(golden, model, places)
    loaded.check_outputs()
    loaded.check_gradients(by_our_names(golden.grads), places)
    loaded.check_steps(width=2)
    loaded.check_searches()


@pytest.mark.parametrize(("name", "changes"), [("gtrans_sparse", {}), ("gtrans_releasearch", RELEASED)])
def test_arithmetic_mixture(name: str, changes: Mapping[str, object]) -> None:
    """The paper's mixture of the same groups: the weighted sum of their probabilities."""
    loaded = fairseq_model(name, gtrans({**MIXTURE, "probabilities": "arithmetic"}), changes=changes)
    batch = loaded.batch()
    found = loaded.model.log_probs(batch.source, batch.target).exp()
    expected = loaded.golden["out/mixture_prob"]
    assert deviation(found[batch.real], expected[batch.real]) < OUTPUT_TOLERANCE


@pytest.mark.parametrize("connection", ["pre_norm", "post_norm"])
@pytest.mark.parametrize("weights", ["average", "sum"])
def test_fixed_weights_equal_learned_ones_of_that_value(connection: str, weights: str) -> None:
    """Golden DLCL models, their weights set to 1/N or 1: fixing these weights gives the same numbers."""
    name = f"dlcl_{connection.replace('_', '')}"
    loaded = fairseq_model(name, both(connection, aggregation=dlcl()))
    learned, batch = loaded.model, loaded.batch()
    with torch.no_grad():
        for stack in (learned.encoder, learned.decoder):
            mix = stack.get_parameter("aggregation.mix")
            row = torch.arange(1.0, mix.size(0) + 1).view(-1, 1, 1)
            mix.copy_((1 / row if weights == "average" else torch.ones_like(row)).expand_as(mix))
    initial = "one" if weights == "sum" else "average"
    for aggregation in ({**DENSE, "weights": weights}, dlcl(learned=False, initial=initial)):
        fixed = fairseq_model(name, both(connection, aggregation=aggregation)).model
        with torch.no_grad():
            one, other = (each.log_probs(batch.source, batch.target) for each in (fixed, learned))
        assert deviation(one, other) < OUTPUT_TOLERANCE


def test_transparent_attention_mixes_normalised_layers() -> None:
    """With the layers of the golden pre-norm Transformer: every layer passes the final norm and is mixed."""
    golden = case("fairseq_prenorm")
    encoder, decoder = both("pre_norm", fusion="transparent", decoder={"fusion": "top"})
    stacks = {"encoder": {"layers": 4, **encoder}, "decoder": {"layers": 3, **decoder}}
    model = build_model(ModelConfig.model_validate({**FAIRSEQ, **stacks}), WORDS, WORDS, pad_id=PAD)
    weights = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    params = golden.params | {"encoder.ta_weight": weights}
    load(model, params, transparent_places(params))
    source = golden["in/src_tokens_rightpad"]
    top = model.get_parameter("encoder.fusion.weights")
    with torch.no_grad():
        mixed = model.encode(source)[0]
        layers = []
        for layer in range(5):  # a share of 1 shows one layer alone
            top.fill_(-1e9)[layer] = 0.0
            layers.append(model.encode(source)[0][0])
        lowest = model.encoder.connection.normalise(model.source_embedding(source), Context())
    words = source != PAD
    encoded = golden["act/enc_out"][golden["in/src_tokens"] != PAD]
    assert deviation(layers[4][words], encoded) < OUTPUT_TOLERANCE
    assert deviation(layers[0], lowest) < OUTPUT_TOLERANCE
    for decoder_layer in range(3):
        shares = weights[:, decoder_layer].softmax(0)
        expected = torch.stack([share * layer for share, layer in zip(shares, layers, strict=True)]).sum(0)
        assert deviation(mixed[decoder_layer], expected) < OUTPUT_TOLERANCE
