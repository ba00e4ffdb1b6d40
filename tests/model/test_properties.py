"""What holds for every choice of the sockets."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.state import DecoderState
from deepwire.model.translator import TranslationModel

SIZE, TOLERANCE = 23, 2e-5
Options = Mapping[str, object]

dropout_free = {"d_model": 16, "heads": 4, "feed_forward": 24, "dropout": 0.0, "max_length": 12}
mixers = st.one_of(
    st.just({"type": "self_attention"}),
    st.fixed_dictionaries(
        {
            "type": st.just("self_attention"),
            "relative": st.integers(1, 3),
            "relative_table": st.sampled_from(["compact", "full"]),
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
        "final_norm": draw(st.sampled_from(["auto", "none", "both"])),
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
            **dropout_free,
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
    model = build_model(config, SIZE, SIZE)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # What begins at 0 or 1, or at equal weights, would hide mistakes.
            if parameter.dim() == 1 or name.endswith(".mix"):
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Sources and targets with padding."""
    source, target_in, target_out = (torch.randint(4, SIZE, (3, length)) for length in (6, 5, 5))
    source[1, 4:] = 0
    target_in[2, 3:] = 0
    target_out[2, 3:] = 0
    return source, target_in, target_out


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(models())
def test_every_parameter_learns_and_all_values_are_finite(model: TranslationModel) -> None:
    """The loss and all gradients are finite; no parameter is left out of the graph."""
    source, target_in, target_out = batch()
    sums = model.loss(source, target_in, target_out, 0.1)
    assert sums.smoothed.isfinite()
    sums.smoothed.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(models(), st.integers(1, 4))
def test_a_later_target_never_changes_an_earlier_output(model: TranslationModel, position: int) -> None:
    """Causality."""
    source, target_in, _ = batch()
    changed = target_in.clone()
    changed[:, position] = (changed[:, position] - 3) % (SIZE - 4) + 4
    with torch.no_grad():
        before, after = model.log_probs(source, target_in), model.log_probs(source, changed)
    assert (before[:, :position] - after[:, :position]).abs().max() < TOLERANCE


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(models())
def test_padding_changes_nothing(model: TranslationModel) -> None:
    """More padding on both sides leaves log-probabilities, scores and loss as they are."""
    source, target_in, target_out = batch()
    wide = tuple(torch.nn.functional.pad(tokens, (0, 3)) for tokens in (source, target_in, target_out))
    with torch.no_grad():
        narrow_log, wide_log = model.log_probs(source, target_in), model.log_probs(*wide[:2])
        real = target_out != 0
        assert (narrow_log - wide_log[:, :5])[real].abs().max() < TOLERANCE
        narrow_loss = model.loss(source, target_in, target_out, 0.1)
        wide_loss = model.loss(*wide, 0.1)
        assert (narrow_loss.smoothed - wide_loss.smoothed).abs() < 1e-3
        score = model.score(source, target_in, target_out)
    expected = narrow_log.gather(2, target_out[..., None]).squeeze(2).masked_fill(~real, 0.0)
    assert (score - expected).abs().max() < TOLERANCE


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(models(), st.integers(1, 4), st.integers(1, 3))
def test_steps_equal_the_full_pass(model: TranslationModel, change: int, width: int) -> None:
    """Step by step, while rows are repeated, reordered within sentences, and sentences leave."""
    source, _, _ = batch()
    prefixes = torch.randint(4, SIZE, (3, width, 5))
    # Rows of a sentence share their past until the state is widened, and again after a reorder.
    kept = torch.tensor([2, 0])
    with torch.no_grad():
        state: DecoderState = model.start(source, 5)
        prefixes[:, :, 0] = prefixes[:, :1, 0]
        found, state = model.step(prefixes[:, 0, 0], state)
        state = state.expand(width)
        check(found.repeat_interleave(width, 0), model, source, prefixes[:, :, :1])
        for position in range(1, 5):
            if position == change:
                order = torch.stack([torch.randperm(width) for _ in range(prefixes.size(0))])
                rows = (torch.arange(prefixes.size(0)).unsqueeze(1) * width + order).flatten()
                state = state.take(rows)
                past = prefixes.flatten(0, 1)[rows].view_as(prefixes)
                prefixes = torch.cat((past[:, :, :position], prefixes[:, :, position:]), 2)
            if position == change + 1:
                state, source, prefixes = state.keep(kept), source[kept], prefixes[kept]
            found, state = model.step(prefixes[:, :, position].flatten(), state)
            check(found, model, source, prefixes[:, :, : position + 1])


def check(found: Tensor, model: TranslationModel, source: Tensor, prefixes: Tensor) -> None:
    """Compare the last step with the full pass over the same prefixes `[N, W, t]`."""
    width = prefixes.size(1)
    full = model.log_probs(source.repeat_interleave(width, 0), prefixes.flatten(0, 1))[:, -1]
    assert (found - full).abs().max() < TOLERANCE
