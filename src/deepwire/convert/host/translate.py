"""Translate with a model that `deepwire export` wrote. Files to copy, change and ship.

    python translate.py < source.txt > translations.txt          (SentencePiece vocabularies)
    python translate.py --ids < source.ids                        (subword ids, any vocabulary)

It needs numpy and what runs the graphs, onnxruntime or torch; text needs sentencepiece too.
`Translator(folder)` is the same for programs. The folder's `manifest.json` says which tensors the graphs read
and write, and how to search; the host itself lies in `deepwire_host`.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from deepwire_host.translator import Translator, main  # type: ignore[import-not-found]  # noqa: E402

__all__ = ["Translator"]

if __name__ == "__main__":
    main(HERE)
