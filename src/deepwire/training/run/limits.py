"""The limits of a run: updates, epochs, target tokens."""

from __future__ import annotations

from deepwire.training.config import TrainingConfig
from deepwire.training.run.state import TrainingState


def limit_reached(config: TrainingConfig, state: TrainingState) -> str | None:
    """Which limit the run has reached, as ``training.max_updates=20000``; None while it goes on."""
    if config.max_updates is not None and state.update >= config.max_updates:
        return f"training.max_updates={config.max_updates}"
    if config.stop_after is not None and _amount(config.stop_after.unit, state) >= config.stop_after.amount:
        return f"training.stop_after={config.stop_after}"
    return None


def progress(config: TrainingConfig, state: TrainingState) -> float:
    """Share of the run that is done, from 0 to 1, by the limit that will be reached first."""
    shares = [0.0]
    if config.max_updates is not None:
        shares.append(state.update / config.max_updates)
    if config.stop_after is not None:
        shares.append(_amount(config.stop_after.unit, state) / config.stop_after.amount)
    return min(1.0, max(shares))


def cut_short(config: TrainingConfig) -> str | None:
    """What to tell the user of a run that ends before its warm-up does; None of others.

    How many updates there are in epochs or tokens is not known before the text is.
    """
    limits = [("training.max_updates", config.max_updates)]
    if config.stop_after is not None and config.stop_after.unit == "updates":
        limits.append(("training.stop_after", config.stop_after.amount))
    ends = [(updates, name) for name, updates in limits if updates is not None]
    if not ends or min(ends)[0] >= config.schedule.warmup:
        return None
    updates, name = min(ends)
    return (
        f"{name}={updates} ends the run within the warm-up (training.schedule.warmup="
        f"{config.schedule.warmup}): the learning rate never reaches its peak, and little is learned"
    )


def _amount(unit: str, state: TrainingState) -> float:
    amounts = {"updates": state.update, "epochs": state.epochs, "tokens": state.target_tokens}
    return amounts[unit]
