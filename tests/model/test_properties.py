"""What holds for every choice of the sockets, with options of their own in any combination."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import SIZE, SMALL, check_parts

Options = Mapping[str, object]

mixers = st.one_of(
    st.just({"type": "self_attention"}),
    st.fixed_dictionaries(
        {
            "type": st.just("self_attention"),
            "relative": st.integers(1, 3),
            "relative_table": st.sampled_from(["compact", "full"]),
            "relative_values": st.booleans(),
        }
    ),
)


@st.composite
def connections(draw: st.DrawFn) -> Options:
    """Every connection, with options that fit each other."""
    kind = draw(st.sampled_from(["pre_norm", "post_norm", "depth_lstm", "depth_rnn"]))
    if kind == "pre_norm":
        return {"type": kind}
    if kind == "post_norm":
        return {"type": kind, "embedding_norm": draw(st.booleans())}
    options: dict[str, object] = {
        "type": kind,
        "hidden": draw(st.sampled_from(["one_layer", "glu", "gelu"])),
        "merge": draw(
            st.sampled_from(["add", "concat", "two"] if kind == "depth_lstm" else ["add", "concat"])
        ),
        "bias": draw(st.booleans()),
        "final_norm": draw(st.sampled_from(["auto", "none", "both", "encoder", "decoder"])),
        "first_norm": draw(st.sampled_from(["second_attention", "second_layer"])),
    }
    if kind == "depth_lstm":
        options["share"] = draw(st.sampled_from(["none", "gates", "all"]))
        options["gate_norm"] = draw(st.sampled_from(["separate", "joint"]))
        if options["share"] != "none" and options["merge"] != "concat":
            options["gate_scope"] = draw(st.sampled_from(["stack", "model"]))
    return options


aggregations = st.one_of(
    st.just({"type": "last"}),
    st.fixed_dictionaries(
        {
            "type": st.just("dlcl"),
            "initial": st.sampled_from(["average", "one"]),
            "learned": st.booleans(),
            "norm": st.sampled_from(["auto", "before", "after", "none"]),
            "embedding_norm": st.sampled_from(["none", "once", "twice"]),
            "weights": st.sampled_from(["scalar", "vector", 4]),
            "softmax": st.booleans(),
            "window": st.sampled_from([None, 1, 2]),
            "window_form": st.sampled_from(["enforced", "initial"]),
        }
    ),
)
representations = st.sampled_from([None, "last", "sum", "mean"])
encoder_fusions = st.one_of(
    st.just({"type": "top"}),
    st.fixed_dictionaries(
        {"type": st.just("groups"), "size": st.integers(1, 3), "representation": representations}
    ),
)
decoder_fusions = st.one_of(
    st.just({"type": "top"}),
    st.fixed_dictionaries(
        {
            "type": st.just("groups"),
            "size": st.integers(1, 3),
            "representation": representations,
            "combine": st.sampled_from([None, "mixture", "average"]),
            "probabilities": st.sampled_from(["arithmetic", "geometric"]),
        }
    ),
)


@st.composite
def models(draw: st.DrawFn) -> TranslationModel:
    """A small model with any choice at every socket; both stacks share the connection."""
    connection = draw(connections())
    config = ModelConfig.model_validate(
        {
            **SMALL,
            "activation": draw(st.sampled_from(["relu", "gelu", "glu"])),
            "positions": draw(st.sampled_from(["sinusoidal", "learned", "none"])),
            "encoder": {
                "layers": 3,
                "mixer": draw(mixers),
                "connection": connection,
                "aggregation": draw(aggregations),
                "fusion": draw(encoder_fusions),
            },
            "decoder": {
                "layers": 3,
                "mixer": draw(mixers),
                "connection": connection,
                "aggregation": draw(aggregations),
                "fusion": draw(decoder_fusions),
            },
        }
    )
    torch.manual_seed(draw(st.integers(0, 2**16)))
    model = build_model(config, SIZE, SIZE).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # What begins at 0 or 1, or at equal weights, would hide mistakes.
            if parameter.dim() == 1 or name.endswith(".mix"):
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(models())
def test_any_options_work_together(model: TranslationModel) -> None:
    """Finite gradients for every parameter, padding, causality, steps and selection: see `check_model`."""
    check_parts(model)
