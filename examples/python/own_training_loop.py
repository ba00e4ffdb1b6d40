"""A training loop of one's own, around the parts of deepwire: text, model, loss; the optimizer is torch's.

python examples/python/own_training_loop.py run.yaml my_model [--epochs 3]
"""

from __future__ import annotations

import argparse

import torch

import deepwire


@torch.no_grad()
def validation_loss(parts: deepwire.TrainingParts) -> float:
    """Mean loss of the batches of the validation text, nats per target token."""
    parts.model.eval()
    losses = [parts.loss(batch).item() for batch in parts.validation_batches()]
    parts.model.train()
    return sum(losses) / len(losses)


def main() -> None:
    """Train for some epochs, keep the best model, and translate a line with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run_file", help="run file or recipe")
    parser.add_argument("output", help="folder for the model")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()

    parts = deepwire.training_parts(options.run_file)
    optimizer = torch.optim.AdamW(parts.model.parameters(), lr=0.0, betas=(0.9, 0.98))
    best, update = float("inf"), 0
    for epoch in range(options.epochs):
        for batch in parts.batches(epochs=1, seed=epoch):
            update += 1
            optimizer.param_groups[0]["lr"] = parts.schedule(update)
            optimizer.zero_grad()
            loss = parts.loss(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parts.model.parameters(), 1.0)
            optimizer.step()
        score = validation_loss(parts)
        print(f"epoch {epoch + 1}: update {update}, validation loss {score:.3f}")
        if score < best:
            best = score
            parts.save(options.output)

    model = deepwire.load(options.output)
    (line,) = (parts.prepared.train.source_text(0),)
    print(f"{line}\n  -> {model.translate([line])[0]}")


if __name__ == "__main__":
    main()
