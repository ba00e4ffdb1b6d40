"""Translate words with a MarianMTModel: python marian_translate.py FOLDER TEXT OUTPUT, in its environment.

The folder is one that marian_train.py wrote. transformers has no command that translates files; its documents
show generate() on batches. Sentences are taken in the order of length, and nothing but the translations is
asked for.
"""

from __future__ import annotations

import argparse
import json
from itertools import takewhile
from pathlib import Path

import torch
from marian_train import END, FIRST_WORD, PAD, padded
from transformers import MarianMTModel


def main() -> None:
    options = arguments()
    model = MarianMTModel.from_pretrained(options.folder, dtype=getattr(torch, options.dtype)).eval()
    # Models of Marian never write padding. Their forced end would be the last of the new tokens.
    model.generation_config.bad_words_ids = [[PAD]]
    model.generation_config.forced_eos_token_id = None
    ids = json.loads((options.folder / "words.json").read_text())
    words = dict(zip(ids.values(), ids, strict=True))
    text = [[*(ids[word] for word in line.split()), END] for line in options.text.read_text().splitlines()]
    order = sorted(range(len(text)), key=lambda row: -len(text[row]))
    found = [""] * len(text)
    for start in range(0, len(order), options.batch):
        rows = order[start : start + options.batch]
        for row, numbers in zip(rows, translated(model, [text[row] for row in rows], options), strict=True):
            made = takewhile(lambda number: number >= FIRST_WORD, numbers)
            found[row] = " ".join(words[number] for number in made)
    options.output.write_text("".join(f"{line}\n" for line in found))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("folder", "text", "output"):
        parser.add_argument(name, type=Path)
    for name in ("beam", "batch", "length"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--dtype", default="float32")
    return parser.parse_args()


@torch.inference_mode()
def translated(
    model: MarianMTModel, sentences: list[list[int]], options: argparse.Namespace
) -> list[list[int]]:
    """The best translation of each sentence, without the token that the decoder starts with."""
    read = padded(sentences, PAD)
    made = model.generate(
        input_ids=read,
        attention_mask=(read != PAD).long(),
        num_beams=options.beam,
        do_sample=False,
        length_penalty=0.0,
        # The end would count, but may not come before the first limit, and at the second the search stops.
        min_new_tokens=options.length,
        max_new_tokens=options.length,
    )
    rows: list[list[int]] = made[:, 1:].tolist()
    return rows


if __name__ == "__main__":
    main()
