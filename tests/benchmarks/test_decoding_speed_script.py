"""The comparison of decoding speed: the model handed over, and the script without peers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import decoding_speed
import numpy as np
import pytest
import torch
from peers.ctranslate2_model import NEVER, CannotExportError, export
from torch import Tensor
from torch.nn import functional

from deepwire.data.vocabulary import BOS, PAD
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translator import TranslationModel

D, HEADS, WORDS = 16, 4, 30
ORDERS = {
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


class Reference:
    """A Transformer as CTranslate2 computes it from its arrays."""

    def __init__(self, folder: Path) -> None:
        self.arrays = {name: torch.from_numpy(a) for name, a in np.load(folder / "model.npz").items()}
        self.settings = json.loads((folder / "settings.json").read_text())

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
def test_what_is_handed_over_computes_the_same(order: str, bias: bool, tmp_path: Path) -> None:
    biases = {"attention": bias, "feed_forward": "both" if bias else "none", "output": bias}
    layout = {"type": "sinusoidal", "layout": "halves", "first": 2} if bias else {"type": "learned"}
    model = model_of(ORDERS[order], bias=biases, positions=layout)
    export(model, tmp_path)
    source, target = torch.randint(4, WORDS, (2, 6)), torch.randint(4, WORDS, (2, 5))
    with torch.no_grad():
        expected = model.log_probs(source, target)
        # What deepwire forbids in the search, CTranslate2 is told with the bias.
        expected[..., [PAD, BOS]] = NEVER
        found = Reference(tmp_path).log_probs(source, target)
    words = torch.tensor([word for word in range(WORDS) if word not in (PAD, BOS)])
    torch.testing.assert_close(found[..., words], expected[..., words].log_softmax(-1), atol=1e-5, rtol=1e-5)
    assert found[..., [PAD, BOS]].max() < NEVER / 2


@pytest.mark.parametrize(
    "settings",
    [
        {"activation": "glu"},
        {"positions": {"type": "none"}},
        {"embeddings": {"norm": True}},
        {"decoder": {"layers": 2, "mixer": "average_attention"}},
        {"encoder": {"layers": 2, "connection": "depth_lstm"}},
        {"encoder": {"layers": 2, "aggregation": "dlcl"}},
    ],
    ids=str,
)
def test_what_ctranslate2_does_not_compute_is_refused(settings: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(CannotExportError):
        export(model_of({"type": "pre_norm"}, **settings), tmp_path)


def test_the_script_writes_a_table_of_every_setting(monkeypatch, tmp_path: Path) -> None:
    small = ("model.d_model=16", "model.heads=2", "model.feed_forward=16")
    layers = ("model.encoder.layers=1", "model.decoder.layers=1")
    options = ("--vocabulary-size", "40", "--length", "4", "--sentences", "3", "--rounds", "1")
    where = ("--threads", "1", "--peers", str(tmp_path / "none"), "--results", str(tmp_path / "results"))
    batches = ("--beam", "2", "1", "--batch", "1", "3", "--formats", "fp32")
    monkeypatch.setattr(
        sys, "argv", ["decoding_speed.py", *options, *where, *batches, "--set", *small, *layers]
    )
    decoding_speed.main()
    (figures,) = (tmp_path / "results").glob("*.json")
    record = json.loads(figures.read_text())
    own = [each for each in record["rounds"] if each["toolkit"] == "deepwire fp32"]
    assert [(each["beam"], each["batch"]) for each in own] == [(2, 1), (2, 3), (1, 1), (1, 3)]
    assert all(each["seconds"] > 0 for each in own)
    (table,) = (tmp_path / "results").glob("*.md")
    assert table.read_text().count("| deepwire fp32 |") == 4


def test_every_format_that_pays_here_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """What the script starts in a process of its own for each format, in this one."""
    first, *others = decoding_speed.formats()
    assert first == "fp32"
    small = ("d_model=16", "heads=2", "feed_forward=16", "encoder.layers=1", "decoder.layers=1")
    origin = {
        "recipe": "papers/neutron-base",
        "set": [f"model.{each}" for each in small],
        "vocabulary": 40,
    }
    job: decoding_speed.Job = {
        "origin": origin,
        "model": "",
        "source": [[5, 6, 2], [7, 2]],
        "settings": [{"beam": 2, "batch": 1}, {"beam": 1, "batch": 2}],
        "threads": 1,
        "length_penalty": 0.0,
        "shortest": 4,
        "longest": 4,
        "shortlist": "",
    }
    few: decoding_speed.Job = {**job, "shortlist": "12"}
    for name, each_job in [("fp32", few), *((name, job) for name in others)]:
        decoding_speed.work(each_job, name)
        results = json.loads(capsys.readouterr().out)["results"]
        assert [(each["beam"], each["batch"]) for each in results] == [(2, 1), (1, 2)]
        assert all(len(ids) == 4 for each in results for ids in each["translations"])


def test_batches_change_no_translation() -> None:
    model = model_of({"type": "pre_norm"})
    source = [[5, 6, 2], [7, 2], [9, 9, 9, 9, 2]]
    for beam in (1, 3):
        one, all_ = (
            decoding_speed.translate(model, source, {"beam": beam, "batch": batch}, 8) for batch in (1, 3)
        )
        assert one == all_


def test_a_trained_model_needs_a_text(monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["decoding_speed.py", "some-run"])
    with pytest.raises(SystemExit):
        decoding_speed.main()
