"""A small encoder in the layout of XLM-R, and what it computes, written out in plain torch."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import sentencepiece
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

DIM, HEADS, INNER, LAYERS, POSITIONS, EPS = 16, 4, 24, 4, 22, 1e-5
TEXT = [
    "a house by the lake",
    "the dog sees a cat in the garden",
    "ein Haus am See",
    "der Hund sieht eine Katze im Garten",
    "two children play with the dog",
    "zwei Kinder spielen mit dem Hund",
    "the cat sleeps in the house",
    "die Katze schläft im Haus",
]


def write_pieces(path: Path, size: int = 55) -> None:
    """A unigram model with XLM-R's special pieces: unknown 0, `<s>` 1, `</s>` 2, no padding."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 3),
        model_writer=model,
        model_type="unigram",
        vocab_size=size,
        character_coverage=1.0,
        normalization_rule_name="nmt_nfkc",
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        minloglevel=5,
    )
    path.write_bytes(model.getvalue())


def write_encoder(
    folder: Path, *, kind: str = "xlm-roberta", prefix: str = "roberta.", **changes: object
) -> Path:
    """The folder: config.json, model.safetensors and sentencepiece.bpe.model."""
    folder.mkdir(parents=True, exist_ok=True)
    write_pieces(folder / "sentencepiece.bpe.model")
    processor = sentencepiece.SentencePieceProcessor(str(folder / "sentencepiece.bpe.model"))
    rows = processor.vocab_size() + 2  # padding in front, <mask> behind
    config = {
        "model_type": kind,
        "hidden_act": "gelu",
        "hidden_size": DIM,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 1,
        "layer_norm_eps": EPS,
        "vocab_size": rows,
        "pad_token_id": 1,
        **changes,
    }
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {f"{prefix}{name}": value for name, value in encoder_tensors(rows).items()}
    save_file({**tensors, "lm_head.bias": torch.zeros(rows)}, folder / "model.safetensors")
    return folder


def encoder_tensors(rows: int) -> dict[str, Tensor]:
    """Random parameters under XLM-R's names, without the name of the model."""
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int) -> Tensor:
        return 0.4 * torch.randn(shape, generator=generator)

    tensors = {
        "embeddings.word_embeddings.weight": random(rows, DIM),
        "embeddings.position_embeddings.weight": random(POSITIONS, DIM),
        "embeddings.token_type_embeddings.weight": random(1, DIM),
        "embeddings.LayerNorm.weight": 1 + random(DIM),
        "embeddings.LayerNorm.bias": random(DIM),
        "pooler.dense.weight": random(DIM, DIM),
    }
    maps = {
        "attention.self.query": (DIM, DIM),
        "attention.self.key": (DIM, DIM),
        "attention.self.value": (DIM, DIM),
        "attention.output.dense": (DIM, DIM),
        "intermediate.dense": (INNER, DIM),
        "output.dense": (DIM, INNER),
    }
    for layer in range(LAYERS):
        of = f"encoder.layer.{layer}."
        for name, shape in maps.items():
            tensors |= {f"{of}{name}.weight": random(*shape), f"{of}{name}.bias": random(shape[0])}
        for name in ("attention.output", "output"):
            tensors |= {
                f"{of}{name}.LayerNorm.weight": 1 + random(DIM),
                f"{of}{name}.LayerNorm.bias": random(DIM),
            }
    return tensors


def encoded(tensors: Mapping[str, Tensor], tokens: Tensor, *, layers: int = LAYERS, first: int = 2) -> Tensor:
    """What XLM-R's encoder makes of `[B, S]` ids of its own without padding, `[B, S, d]`."""

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ tensors[f"{name}.weight"].t() + tensors[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, (DIM,), tensors[f"{name}.weight"], tensors[f"{name}.bias"], EPS)

    x = tensors["embeddings.word_embeddings.weight"][tokens]
    x = x + tensors["embeddings.position_embeddings.weight"][first : first + tokens.size(1)]
    x = norm(x + tensors["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(layers):
        of = f"encoder.layer.{layer}."
        query, key, value = (
            linear(x, f"{of}attention.self.{part}").unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        weights = (query @ key.transpose(-1, -2) / (DIM // HEADS) ** 0.5).softmax(-1)
        seen = (weights @ value).transpose(1, 2).flatten(2)
        x = norm(x + linear(seen, f"{of}attention.output.dense"), f"{of}attention.output.LayerNorm")
        inner = functional.gelu(linear(x, f"{of}intermediate.dense"))
        x = norm(x + linear(inner, f"{of}output.dense"), f"{of}output.LayerNorm")
    return x
