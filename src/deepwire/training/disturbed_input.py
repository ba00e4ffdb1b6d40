"""What the run file says about disturbed input, for the vocabularies of a run."""

from __future__ import annotations

from deepwire.data.vocabulary import UNK, Vocabularies
from deepwire.model.perturbation import Perturbation, Words
from deepwire.training.config import TrainingConfig


def perturbation_of(config: TrainingConfig, vocabularies: Vocabularies) -> Perturbation | None:
    """How training disturbs the input of a batch; None where it does not."""
    if config.input_noise is None and config.sim_cut is None:
        return None
    # Tags of languages come after the pieces.
    source, target = (Words(UNK, side.size) for side in (vocabularies.source, vocabularies.target))
    return Perturbation(source, target, config.input_noise, config.sim_cut)
