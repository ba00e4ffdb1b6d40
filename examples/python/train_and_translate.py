"""Train a small model from Python, lower its learning rate in a callback, and translate with it.

    python examples/python/train_and_translate.py train.de train.en [--updates 2000]

The two files are parallel text, one sentence a line; the last tenth of them is held out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import deepwire


class LowerOnPlateau(deepwire.Callback):
    """Halves the learning rate whenever the validation loss has not improved."""

    def __init__(self) -> None:
        self.best = float("inf")

    def after_validation(self, session: deepwire.TrainingSession, validation: deepwire.Validation) -> None:
        """Compare with the best so far."""
        loss = validation.scores["loss"]
        if loss > self.best:
            session.learning_rate /= 2
            print(f"update {session.update}: learning rate is now {session.learning_rate:.1e}")
        self.best = min(self.best, loss)


def main() -> None:
    """Train and translate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/python"))
    parser.add_argument("--updates", type=int, default=2000)
    options = parser.parse_args()

    texts = [file.read_text(encoding="utf-8").splitlines() for file in (options.source, options.target)]
    held_out = len(texts[0]) // 10
    options.folder.mkdir(parents=True, exist_ok=True)
    for side, lines in zip(("source", "target"), texts, strict=True):
        for name, part in (("train", lines[:-held_out]), ("valid", lines[-held_out:])):
            (options.folder / f"{name}.{side}").write_text("\n".join(part) + "\n", encoding="utf-8")

    settings = {
        "data": {
            "source": "source",
            "target": "target",
            "train": options.folder / "train",
            "valid": options.folder / "valid",
            "prepared": options.folder / "prepared",
            "vocabulary": "words",
        },
        "model": {"d_model": 128, "heads": 4, "feed_forward": 256, "encoder": {"connection": "depth_lstm"}},
        "training": {
            "max_updates": options.updates,
            "schedule": {"peak": 2e-3, "warmup": options.updates // 5},
            "validation": {"every": max(1, options.updates // 10)},
        },
    }
    run = deepwire.train(settings, run=options.folder / "run", callbacks=[LowerOnPlateau()])

    losses = [record["loss"] for record in run.history if record["kind"] == "valid"]
    print("validation losses:", *(f"{loss:.3f}" for loss in losses))
    some = texts[0][-held_out:][:5]
    for line, translation in zip(some, run.model.translate(some), strict=True):
        print(f"{line}\n  -> {translation}")


if __name__ == "__main__":
    main()
