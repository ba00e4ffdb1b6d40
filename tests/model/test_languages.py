"""Parameters of which each target language has its own: norms, transform, embeddings, output bias."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.languages import LanguageTransform
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.packed_linear import pack_linears
from deepwire.testing import LANGUAGES, SIZE, batch, language_tables, small_model

ALL = {"norm": True, "transform": "released", "embedding": "both", "output_bias": True}
SPOKEN = torch.tensor([2, 0, 1])
# A stack with each of the places where a norm may stand.
STACKS: Mapping[str, tuple[Mapping[str, object], Mapping[str, object]]] = {
    "residual": ({"connection": "post_norm"}, {"connection": "pre_norm"}),
    "depth_lstm": ({"connection": "depth_lstm"}, {"connection": {"type": "depth_lstm", "share": "none"}}),
    "joint": ({}, {"connection": {"type": "depth_lstm", "gate_norm": "joint"}}),
    "model_gates": ({"connection": {"type": "depth_lstm", "gate_scope": "model"}},) * 2,
    "mhplstm": ({"mixer": {"type": "mhplstm", "norms": "joint"}}, {"mixer": "mhplstm"}),
    "recurrent": ({}, {"mixer": "gru"}),
    "ln_lstm": ({}, {"mixer": {"type": "ln_lstm", "gate_norm": "joint"}}),
    "average": ({}, {"mixer": {"type": "average_attention", "feed_forward": "normalised"}}),
    "hierarchical": ({"aggregation": "hierarchical"}, {"aggregation": "dlcl"}),
    "fused": ({"fusion": {"type": "groups", "size": 1}}, {"fusion": {"type": "groups", "size": 1}}),
    "geometric": ({}, {"fusion": {"type": "groups", "size": 2, "probabilities": "geometric"}}),
    "averaged": ({}, {"fusion": {"type": "groups", "size": 2, "combine": "average"}}),
    "transparent": ({"fusion": "transparent"}, {}),
    "collaboration": ({"connection": "collaboration", "fusion": "blocks"}, {"connection": "collaboration"}),
    "runge_kutta": ({"connection": "runge_kutta"}, {}),
}


def model_settings(stacks: str, languages: Mapping[str, object] = ALL) -> dict[str, object]:
    """With all that languages may have of their own: groups, too, where there are any."""
    encoder, decoder = STACKS[stacks]
    sides = [
        side for side, stack in zip(("encoder", "decoder"), (encoder, decoder), strict=True) if grouped(stack)
    ]
    fusion = {"fusion": sides[0] if len(sides) == 1 else "both"} if sides and languages is ALL else {}
    return {"encoder": encoder, "decoder": decoder, "languages": {**languages, **fusion}}


def grouped(stack: Mapping[str, object]) -> bool:
    """Whether the fusion of a stack is one of groups."""
    fusion = stack.get("fusion")
    return isinstance(fusion, Mapping) and fusion["type"] == "groups"


def model(stacks: str = "residual", languages: Mapping[str, object] = ALL) -> TranslationModel:
    """A small model of three languages."""
    return small_model(model_settings(stacks, languages))


@pytest.mark.parametrize(
    "stacks",
    ["residual", "depth_lstm", "mhplstm", "recurrent", "collaboration", "fused", "geometric", "averaged"],
)
def test_a_language_is_the_model_with_its_entries(stacks: str) -> None:
    """A model with one set of parameters, those of language 1, gives what the model gives for language 1."""
    many = model(stacks)
    one = build_model(many.config, SIZE, SIZE, languages=1).eval()
    tables = language_tables(many)
    with torch.no_grad():
        for name, parameter in one.named_parameters():
            value = many.get_parameter(name)
            parameter.copy_(value[1:2] if name in tables else value)
        source, target_input, _ = batch()
        found = many.log_probs(source, target_input, languages=torch.tensor([1, 1, 1]))
        expected = one.log_probs(source, target_input, languages=torch.tensor([0, 0, 0]))
    assert torch.allclose(found, expected, atol=1e-5)


def test_norms_begin_as_a_plain_norm() -> None:
    """Gain 1 and bias 0 for every language; forget gates begin open where asked for."""
    settings = {"d_model": 16, "heads": 4, "feed_forward": 24, "languages": {"norm": True}}
    gates = {"connection": {"type": "depth_lstm", "forget_bias": 2.0}, "layers": 2}
    built = build_model(ModelConfig.model_validate({**settings, "encoder": gates}), 9, 9, languages=4)
    plain = build_model(ModelConfig.model_validate({**settings, "languages": {}}), 9, 9, languages=4)
    assert plain.languages == 0
    assert built.languages == 4
    gate = built.encoder.connection.gates[0].norm
    assert torch.equal(gate.bias, torch.tensor([0.0, 2.0, 0.0])[None, :, None].expand(4, 3, 16))
    norm = built.decoder.connection.norms[0]
    assert torch.equal(norm.weight, torch.ones(4, 16))
    assert not norm.bias.any()


@pytest.mark.parametrize("initial", ["released", "identity"])
def test_how_the_transform_begins(initial: str) -> None:
    """As the identity nothing changes; as released it is Glorot's uniform of `[L, d * d]`."""
    torch.manual_seed(1)
    transform = LanguageTransform(6, 64, "identity" if initial == "identity" else "released")
    x = torch.randn(2, 7, 64)
    (found,) = transform((x,), torch.tensor([5, 3]))
    if initial == "identity":
        assert torch.equal(found, x)
        return
    bound = (6 / (6 + 64 * 64)) ** 0.5
    assert transform.weight.abs().max() <= bound
    assert transform.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    assert torch.allclose(found[1], x[1] @ transform.weight[3].t(), atol=1e-6)


def test_language_embeddings_join_before_the_scale() -> None:
    """(E[w] + L[t]) * sqrt(d) + position, and one table for both sides where they share their matrix."""
    built = model(languages={"embedding": "both"})
    assert built.source_embedding.language is built.target_embedding.language
    embedding, tokens = built.target_embedding, torch.tensor([[5, 7], [6, 6]])
    found = embedding(tokens, torch.tensor([1, 2]))
    assert embedding.language is not None
    table = embedding.table.weight[tokens] + embedding.language.table[[1, 2]][:, None]
    positions = embedding.positions(0, 2, table)
    assert positions is not None
    assert torch.allclose(found, table * 4.0 + positions, atol=1e-6)
    apart = small_model({"languages": {"embedding": "both"}, "embeddings": {"tie": "output"}})
    assert apart.source_embedding.language is not apart.target_embedding.language
    decoder = small_model({"languages": {"embedding": "decoder"}})
    assert decoder.source_embedding.language is None
    assert decoder.target_embedding.language is not None


def assert_predicts(built: TranslationModel, expected: Tensor) -> None:
    """Log-probabilities, scores and loss of the batch in SPOKEN are those of `expected` `[B, T, V]`."""
    source, target_input, target_output = batch()
    found = built.log_probs(source, target_input, languages=SPOKEN)
    assert torch.allclose(found, expected, atol=1e-5)
    picked = expected.gather(2, target_output.unsqueeze(2)).squeeze(2) * (target_output != 0)
    score = built.score(source, target_input, target_output, languages=SPOKEN)
    assert torch.allclose(score, picked, atol=1e-5)
    loss = built.loss(source, target_input, target_output, languages=SPOKEN)
    assert loss.nll.item() == pytest.approx(-picked.sum().item(), rel=1e-5)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["depth_lstm", "fused", "geometric", "averaged"]),
    st.lists(st.integers(0, LANGUAGES - 1), min_size=1, max_size=6),
    st.integers(0, 2**16),
)
def test_a_mixed_batch_is_its_single_language_batches(stacks: str, spoken: list[int], seed: int) -> None:
    """Rows of one language alone get what they get among rows of others; the losses add up, R-Drop's too."""
    torch.manual_seed(seed)
    built = MIXED[stacks]
    source, target = torch.randint(4, SIZE, (len(spoken), 5)), torch.randint(4, SIZE, (len(spoken), 4))
    languages = torch.tensor(spoken)
    with torch.no_grad():
        together = built.log_probs(source, target, languages=languages)
        for language in set(spoken):
            rows = languages == language
            alone = built.log_probs(source[rows], target[rows], languages=languages[rows])
            assert torch.allclose(together[rows], alone, atol=2e-5)
        for weight in (0.0, 1.0):

            def losses(chosen: Tensor, weight: float = weight) -> Tensor:
                shifted = target[chosen].roll(-1, 1)
                sums = built.loss(
                    source[chosen],
                    target[chosen],
                    shifted,
                    0.1,
                    "uniform_wrong",
                    weight,
                    languages=languages[chosen],
                )
                return torch.stack(sums[:3])

            parts = torch.stack([losses(languages == language) for language in set(spoken)]).sum(0)
            assert torch.allclose(losses(languages >= 0), parts, rtol=1e-4)


MIXED = {stacks: model(stacks) for stacks in ("depth_lstm", "fused", "geometric", "averaged")}


def test_languages_must_be_told_and_fit() -> None:
    """A clear refusal at every door; a model without parameters of languages takes them and ignores them."""
    built = model()
    source, target_input, target_output = batch()
    for call in (
        lambda languages: built.loss(source, target_input, target_output, languages=languages),
        lambda languages: built.log_probs(source, target_input, languages=languages),
        lambda languages: built.score(source, target_input, target_output, languages=languages),
        lambda languages: built.encode(source, languages=languages),
        lambda languages: built.decode(source, target_input, languages=languages),
        lambda languages: built.start(source, languages=languages),
    ):
        with pytest.raises(UsageError, match="was not told the target languages"):
            call(None)
        with pytest.raises(UsageError, match=r"of shape \[2\] for 3 rows"):
            call(torch.tensor([0, 1]))
    plain = small_model({})
    assert torch.equal(
        plain.log_probs(source, target_input, languages=SPOKEN), plain.log_probs(source, target_input)
    )
    assert plain.start(source, languages=SPOKEN).context.languages is None


@pytest.mark.parametrize(
    "stacks", ["residual", "depth_lstm", "joint", "mhplstm", "recurrent", "collaboration"]
)
def test_one_language_may_stand_for_all_rows(stacks: str) -> None:
    """`[1]` is that language in every row: probabilities, loss, scores, also of packed weights, and search,
    which notices by itself."""
    built = model(stacks)
    source, target_input, target_output = batch()
    one, each = torch.tensor([2]), torch.tensor([2, 2, 2])
    with torch.no_grad():
        found = built.log_probs(source, target_input, languages=one)
        expected = built.log_probs(source, target_input, languages=each)
        losses = [
            built.loss(source, target_input, target_output, 0.1, r_drop=weight, languages=spoken).smoothed
            for weight in (0.0, 1.0)
            for spoken in (one, each)
        ]
        pairs = source, target_input, target_output
        scores = [built.score(*pairs, languages=each)]
        pack_linears(built, "none")
        scores += [built.score(*pairs, languages=spoken) for spoken in (one, each)]
        state = built.start(source, languages=each)
        assert state.context.languages is not None
        assert state.context.languages.tolist() == [2]
        state = state.expand(2)
        for position in range(2):
            step, state = built.step(target_input[:, position].repeat_interleave(2), state)
            assert torch.allclose(step[::2], expected[:, position], atol=2e-5)
        state = state.reorder(torch.tensor([1, 0, 3, 2, 5, 4])).keep(torch.tensor([2, 0]))
        step, _ = built.step(target_input[[2, 0], 2].repeat_interleave(2), state)
    assert torch.allclose(found, expected, atol=2e-5)
    assert torch.allclose(step[::2], expected[[2, 0], 2], atol=2e-5)
    assert all(torch.allclose(score, scores[0], atol=2e-5) for score in scores[1:])
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    assert losses[2].item() == pytest.approx(losses[3].item(), rel=1e-5)


def test_weights_of_groups_by_language() -> None:
    """GTrans as released, ls:sparse: log p = sum_g softmax(u_t / tau)_g log p_g, t the target language."""
    built = model("geometric", {"fusion": "decoder"})
    source, target_input, _ = batch()
    with torch.no_grad():
        results = torch.stack(built.decode(source, target_input, languages=SPOKEN))
        alone = (results @ built.head.table.weight.t() + built.head.bias).log_softmax(-1)
        psi = (built.get_parameter("decoder.fusion.weights")[SPOKEN] / 4.0).softmax(1)
        expected = torch.einsum("bg,gbtv->btv", psi, alone)
        assert_predicts(built, expected)
    (shown,) = [weights for weights in built.decoder.depth_weights() if weights.key == "probability-weights"]
    assert torch.allclose(shown.values[SPOKEN], psi)
