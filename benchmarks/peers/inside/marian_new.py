"""Make a MarianMTModel with random weights: python marian_new.py SETTINGS.json FOLDER, in its environment.

The settings are those of marian_train.py. The model comes into the folder as transformers saves it, its words
beside it; how many parameters it has is printed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from marian_train import FIRST_WORD, configuration, numbers_of_words, text_of
from transformers import MarianMTModel


def main() -> None:
    settings, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    ids = numbers_of_words(text_of(settings))
    torch.manual_seed(1)
    model = MarianMTModel(configuration(settings, len(ids) + FIRST_WORD))
    model.save_pretrained(folder)
    (folder / "words.json").write_text(json.dumps(ids))
    # Sinusoidal positions are parameters there, but are not trained.
    count = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    print(f"parameters: {count}")


if __name__ == "__main__":
    main()
