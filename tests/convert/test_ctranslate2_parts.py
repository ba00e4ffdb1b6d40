"""Parts of today's Transformers in CTranslate2 itself, which scores and translates what deepwire does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from deepwire.convert.ctranslate2 import save_spec, transformer_spec
from deepwire.model.connections.scaled_post_norm import BranchNorm
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import SIZE, small_model

ctranslate2 = pytest.importorskip("ctranslate2")
PIECES = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{number}" for number in range(4, SIZE))]
MODERN = {
    "norm": "rms",
    "activation": "swiglu",
    "positions": "rotary",
    "key_value_heads": 2,
    "bias": {"feed_forward": "none"},
}


COMPLETE_P = {"type": "complete_p", "base": {"d_model": 8, "heads": 4, "encoder_layers": 2}}


def both(connection: object, **others: object) -> dict[str, object]:
    """Settings with that connection on both sides."""
    return {**others, "encoder": {"connection": connection}, "decoder": {"connection": connection}}


def relative(sides: str, connection: str = "pre_norm", **settings: object) -> dict[str, object]:
    """Settings with relative positions up to 2 words on one side or both, and none on the other."""
    of_mixer = {key: settings.pop(key) for key in list(settings) if key.startswith("relative_")}
    mixer = {"type": "self_attention", "relative": 2, **of_mixer}
    has = {side: {"mixer": mixer} if sides in (side, "both") else {} for side in ("encoder", "decoder")}
    stacks = {side: {"connection": connection, **has[side]} for side in has}
    return {**settings, "positions": "none", **stacks}


def scores_of(model: TranslationModel, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the words of a translation, by both programs."""
    spec = transformer_spec(model)
    spec.config.add_source_eos = True
    save_spec(spec, [PIECES, PIECES], folder)
    translator = ctranslate2.Translator(str(folder), device="cpu")
    source, target = torch.randint(4, SIZE, (2, 5)), torch.randint(4, SIZE, (2, 6))
    texts = [[[PIECES[word] for word in row] for row in side] for side in (source, target)]
    found = torch.tensor([result.log_probs for result in translator.score_batch(*texts)])
    end = torch.full((2, 1), 2)
    read, wanted = torch.cat((torch.ones_like(end), target), 1), torch.cat((target, end), 1)
    with torch.no_grad():
        log_probs = model.log_probs(torch.cat((source, end), 1), read)
    log_probs[..., :2] = float("-inf")  # which CTranslate2 is told never to choose
    return found, log_probs.log_softmax(-1).gather(2, wanted[..., None])[..., 0]


@pytest.mark.parametrize(
    "settings",
    [
        {"activation": "silu", "embeddings": {"start": "zero"}},
        {"activation": "geglu", "bias": {"feed_forward": "both"}},
        {"positions": {"type": "rotary", "layout": "interleaved", "base": 50}},
        {"key_value_heads": 1, "decoder": {"size": {"key_value_heads": 4}}},
        MODERN,
        both("deepnorm", **MODERN),
        both("admin", **MODERN),
        both("branch_norm"),
        both({"type": "layer_scale", "initial": 0.5}),
        both("layer_norm_scaling"),
        relative("both", relative_values=True),
        relative("decoder"),
        relative("encoder", relative_values=True, key_value_heads=2, norm="rms"),
        relative("decoder", relative_table="full"),
        relative("both", connection="admin"),
        {"positions": "none"},
        both("admin", embeddings={"norm": True}),
        both("peri_ln", embeddings={"norm": True}, norm="rms"),
        both({"type": "pre_norm", "final_norm": False}),
        both({"type": "peri_ln", "embedding_norm": True, "output_gain": 0.5}),
        both("peri_ln", **MODERN),
        both("peri_ln", parametrization=COMPLETE_P),
        {"parametrization": COMPLETE_P},
        both("branch_norm", parametrization=COMPLETE_P, key_value_heads=2),
    ],
    ids=str,
)
def test_ctranslate2_computes_the_same(settings, tmp_path: Path) -> None:
    """Log-probabilities of every word."""
    model = small_model(settings, 3)
    for stack in (model.encoder, model.decoder):
        if isinstance(stack.connection, BranchNorm):
            stack.connection.begin_update(1000)  # of 4000
    found, expected = scores_of(model, tmp_path)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
