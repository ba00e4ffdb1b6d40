"""Early stopping: training ends when a metric stands still."""

from __future__ import annotations

import math
from dataclasses import dataclass

from deepwire.checkpoint.run_directory import better
from deepwire.training.config import EarlyStoppingConfig


@dataclass
class Patience:
    """Counts the scores since a metric last improved.

    Attributes:
        best: The best score so far; None before the first.
        waited: Scores since then.
        metric: What was scored; empty where an earlier version did not record it.
    """

    best: float | None = None
    waited: int = 0
    metric: str = ""

    def see(self, config: EarlyStoppingConfig, scores: dict[str, float]) -> None:
        """Take note of one validation; one without the metric does not count."""
        score = scores.get(config.metric)
        if score is None:
            return
        if self.metric not in ("", config.metric):  # the user changed it: scores of another do not compare
            self.best, self.waited = None, 0
        self.metric = config.metric
        if math.isfinite(score) and (self.best is None or self._improves(config, score, self.best)):
            self.best, self.waited = score, 0
        else:
            self.waited += 1

    def exhausted(self, config: EarlyStoppingConfig) -> bool:
        """Whether it is time to stop."""
        return self.waited >= config.patience

    def _improves(self, config: EarlyStoppingConfig, score: float, best: float) -> bool:
        return better(config.metric, score, best) and abs(score - best) >= config.min_improvement
