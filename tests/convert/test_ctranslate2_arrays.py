"""The arrays that CTranslate2 is given: a Transformer computed from them as CTranslate2 does it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from deepwire.convert.ctranslate2_arrays import arrays_of, settings_of
from deepwire.convert.plain import NEVER
from deepwire.data.vocabulary import BOS, PAD
from deepwire.errors import ModelError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel

D, HEADS, WORDS = 16, 4, 30
ORDERS: dict[str, dict[str, object]] = {
    "pre_norm": {"type": "pre_norm"},
    "neutron": {"type": "pre_norm", "residual": "normalised"},
    "post_norm": {"type": "post_norm"},
    "post_norm_embedding": {"type": "post_norm", "embedding_norm": True},
}


def model_of(connection: Mapping[str, object], **settings: object) -> TranslationModel:
    torch.manual_seed(1)
    stacks = {side: {"layers": 2, "connection": connection} for side in ("encoder", "decoder")}
    small = {"d_model": D, "heads": HEADS, "feed_forward": 24, "norm_eps": 1e-5}
    model = build_model(ModelConfig.model_validate({**small, **stacks, **settings}), WORDS, WORDS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def both(connection: object) -> dict[str, object]:
    """Settings with that connection on both sides."""
    return {side: {"layers": 2, "connection": connection} for side in ("encoder", "decoder")}


class Reference:
    """A Transformer as CTranslate2 computes it from its arrays."""

    def __init__(self, model: TranslationModel) -> None:
        self.arrays, self.settings = arrays_of(model), settings_of(model)

    def log_probs(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.stack("encoder", source, None)
        logits = self.linear("decoder/projection", self.stack("decoder", target, memory))
        return logits.log_softmax(-1)

    def stack(self, side: str, tokens: Tensor, memory: Tensor | None) -> Tensor:
        index = ("encoder", "decoder").index(side)
        table = self.arrays[
            f"{side}/embeddings_0/weight" if side == "encoder" else f"{side}/embeddings/weight"
        ]
        x = table[tokens] * (D**0.5 if self.settings["scale"][index] else 1)
        x = x + self.arrays[f"{side}/position_encodings/encodings"][: tokens.size(1)]
        if self.settings["embedding_norm"]:
            x = self.norm(f"{side}/layernorm_embedding", x)
        for layer in range(self.settings["layers"][index]):
            place = f"{side}/layer_{layer}"
            x = self.sublayer(f"{place}/self_attention", x, lambda at, y: self.attend(at, y, None, side))
            if memory is not None:
                x = self.sublayer(f"{place}/attention", x, lambda at, y: self.attend(at, y, memory, side))
            x = self.sublayer(f"{place}/ffn", x, self.feed_forward)
        return self.norm(f"{side}/layer_norm", x) if self.settings["pre_norm"] else x

    def sublayer(self, place: str, x: Tensor, function) -> Tensor:
        if self.settings["pre_norm"]:
            return x + function(place, self.norm(f"{place}/layer_norm", x))
        return self.norm(f"{place}/layer_norm", x + function(place, x))

    def feed_forward(self, place: str, x: Tensor) -> Tensor:
        return self.linear(f"{place}/linear_1", self.linear(f"{place}/linear_0", x).relu())

    def attend(self, place: str, x: Tensor, memory: Tensor | None, side: str) -> Tensor:
        if memory is None:
            q, k, v = self.linear(f"{place}/linear_0", x).chunk(3, -1)
        else:
            q = self.linear(f"{place}/linear_0", x)
            k, v = self.linear(f"{place}/linear_1", memory).chunk(2, -1)
        q, k, v = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in (q, k, v))
        causal = memory is None and side == "decoder"
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)
        return self.linear(f"{place}/linear_{1 if memory is None else 2}", mixed)

    def linear(self, place: str, x: Tensor) -> Tensor:
        return functional.linear(x, self.arrays[f"{place}/weight"], self.arrays[f"{place}/bias"])

    def norm(self, place: str, x: Tensor) -> Tensor:
        gain, bias = self.arrays[f"{place}/gamma"], self.arrays[f"{place}/beta"]
        return functional.layer_norm(x, x.shape[-1:], gain, bias, self.settings["norm_eps"])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("bias", [True, False])
def test_what_is_handed_over_computes_the_same(order: str, bias: bool) -> None:
    biases = {"attention": bias, "feed_forward": "both" if bias else "none", "output": bias}
    layout = {"type": "sinusoidal", "layout": "halves", "first": 2} if bias else {"type": "learned"}
    model = model_of(ORDERS[order], bias=biases, positions=layout)
    source, target = torch.randint(4, WORDS, (2, 6)), torch.randint(4, WORDS, (2, 5))
    with torch.no_grad():
        expected = model.log_probs(source, target)
        # What deepwire forbids in the search, CTranslate2 is told with the bias.
        expected[..., [PAD, BOS]] = NEVER
        found = Reference(model).log_probs(source, target)
    words = torch.tensor([word for word in range(WORDS) if word not in (PAD, BOS)])
    torch.testing.assert_close(found[..., words], expected[..., words].log_softmax(-1), atol=1e-5, rtol=1e-5)
    assert found[..., [PAD, BOS]].max() < NEVER / 2


@pytest.mark.parametrize(
    ("named", "settings"),
    [
        ("activation=glu", {"activation": "glu"}),
        (
            "embeddings.norm=true, a second norm",
            {"embeddings": {"norm": True}, **both({"type": "post_norm", "embedding_norm": True})},
        ),
        ("embeddings.side=true", {"embeddings": {"side": True}}),
        ("decoder.mixer=average_attention", {"decoder": {"layers": 2, "mixer": "average_attention"}}),
        (
            "encoder.mixer.relative beside encoder.positions=sinusoidal",
            {"encoder": {"mixer": {"type": "self_attention", "relative": 4}}},
        ),
        (
            "decoder.mixer.relative beside decoder.positions=learned",
            {"decoder": {"mixer": {"type": "self_attention", "relative": 4}, "positions": "learned"}},
        ),
        ("final_norm=false", both({"type": "pre_norm", "residual": "normalised", "final_norm": False})),
        ("encoder.connection=depth_lstm", {"encoder": {"layers": 2, "connection": "depth_lstm"}}),
        ("encoder.connection=keel", both("keel")),
        ("qk_norm=true", {"qk_norm": True}),
        ("inner_norm=true", {"inner_norm": True}),
        ("encoder.aggregation=dlcl", {"encoder": {"layers": 2, "aggregation": "dlcl"}}),
        ("decoder.fusion=groups", {"decoder": {"layers": 2, "fusion": {"type": "groups", "size": 1}}}),
        ("decoder.feed_forward=false", {"decoder": {"layers": 2, "feed_forward": False}}),
        ("different sizes", {"encoder": {"size": {"feed_forward": 8}}}),
        ("different connections", {"encoder": {"connection": "post_norm"}}),
    ],
    ids=str,
)
def test_what_ctranslate2_does_not_compute_is_refused_by_name(
    named: str, settings: dict[str, object]
) -> None:
    with pytest.raises(ModelError, match=named.replace(".", r"\.")):
        arrays_of(model_of({"type": "pre_norm"}, **settings))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"encoder": {"mixer": {"type": "self_attention", "relative": 4}}}, "it adds no positions to words"),
        ({"encoder": {"layers": 2, "connection": "depth_lstm"}}, "use connection: pre_norm"),
        ({"activation": "glu"}, "use relu, gelu"),
        ({"qk_norm": True}, "it computes Transformers"),
    ],
)
def test_the_hint_says_what_to_use_instead(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ModelError) as refused:
        arrays_of(model_of({"type": "pre_norm"}, **settings))
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(said)
    assert refused.value.hint.endswith("--format onnx exports every model")
