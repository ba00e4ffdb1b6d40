"""Train MarianMTModel of transformers on words: python marian_train.py SETTINGS.json [FOLDER].

transformers has no training command for translation from scratch; its documents show its Trainer, which
batches by sentences. This loop batches by tokens, as the other toolkits do, and uses what its documents name
as fastest on a CPU: fused attention, torch's fused AdamW, bfloat16 autocast where asked for, sentences
grouped by length. Prints update, time and target tokens as JSON lines. With FOLDER the model is saved there
untrained, its words beside it, and the number of its parameters is printed.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.nn import functional
from transformers import MarianConfig, MarianMTModel

PAD, END, FIRST_WORD = 0, 1, 2
IGNORED = -100


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    torch.manual_seed(1)
    sides = text_of(settings)
    ids = numbers_of_words(sides)
    numbered = ([[*(ids[word] for word in line), END] for line in side] for side in sides)
    pairs = list(zip(*numbered, strict=True))
    model = MarianMTModel(configuration(settings, len(ids) + FIRST_WORD)).train()
    if len(sys.argv) > 2:
        model.save_pretrained(sys.argv[2])
        Path(sys.argv[2], "words.json").write_text(json.dumps(ids))
        # Sinusoidal positions are parameters there, but are not trained.
        print("parameters:", sum(each.numel() for each in model.parameters() if each.requires_grad))
        return
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.998), weight_decay=0, fused=True)
    bfloat16 = settings["precision"] == "bf16"
    tokens, batches = 0, batched(pairs, settings["batch_tokens"])
    for update in range(1, settings["updates"] + 1):
        read, labels = next(batches)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            # The model shifts the labels to make what its decoder reads.
            inputs = labels.masked_fill(labels == IGNORED, PAD)
            inputs = functional.pad(inputs, (1, 0), value=PAD)[:, :-1]
            logits = model(
                input_ids=read, attention_mask=(read != PAD).long(), decoder_input_ids=inputs, use_cache=False
            ).logits
            loss = functional.cross_entropy(
                logits.flatten(0, 1),
                labels.flatten(),
                ignore_index=IGNORED,
                label_smoothing=settings["label_smoothing"],
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tokens += int((labels != IGNORED).sum())
        if update % settings["log_every"] == 0:
            print(
                json.dumps(
                    {"update": update, "time": time.time(), "target_tokens": tokens, "loss": loss.item()}
                ),
                flush=True,
            )


def text_of(settings: dict[str, str]) -> list[list[list[str]]]:
    """The lines of both sides, as words."""
    return [
        [line.split() for line in Path(settings[side]).read_text().splitlines()]
        for side in ("source", "target")
    ]


def numbers_of_words(sides: list[list[list[str]]]) -> dict[str, int]:
    """The joint vocabulary, the most frequent word first."""
    words = Counter(word for side in sides for line in side for word in line)
    return {word: number for number, (word, _) in enumerate(words.most_common(), FIRST_WORD)}


def configuration(settings: dict[str, object], vocabulary: int) -> MarianConfig:
    """The task's model; Marian normalises after each sub-layer."""
    sides = {
        f"{side}_{name}": settings[key]
        for side in ("encoder", "decoder")
        for name, key in (("layers", "layers"), ("attention_heads", "heads"), ("ffn_dim", "d_ffn"))
    }
    return MarianConfig(
        **sides,
        vocab_size=vocabulary,
        decoder_vocab_size=vocabulary,
        d_model=settings["d_model"],
        max_position_embeddings=512,
        dropout=settings["dropout"],
        attention_dropout=settings["dropout"],
        activation_dropout=settings["dropout"],
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=PAD,
        forced_eos_token_id=END,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )


def batched(
    pairs: list[tuple[list[int], list[int]]], tokens: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of pairs of like length, at most so many padded tokens a side, in random order for ever."""
    order = sorted(range(len(pairs)), key=lambda i: (len(pairs[i][1]), len(pairs[i][0])))
    groups: list[list[int]] = [[]]
    for index in order:
        longest = max(map(len, pairs[index]))
        if (len(groups[-1]) + 1) * longest > tokens:
            groups.append([])
        groups[-1].append(index)
    generator = random.Random(1)
    while True:
        generator.shuffle(groups)
        for group in groups:
            yield padded([pairs[i][0] for i in group], PAD), padded([pairs[i][1] for i in group], IGNORED)


def padded(rows: list[list[int]], filler: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])


if __name__ == "__main__":
    main()
