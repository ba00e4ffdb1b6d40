"""What a training run is made of, before it starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.data.prepare.prepared import Prepared
from deepwire.data.vocabulary import Vocabularies
from deepwire.model.encoder_decoder import TranslationModel
from deepwire.training.config import TextMetric, TrainingConfig
from deepwire.training.run.same_settings import CHANGEABLE, Complete, as_recorded


class TranslateTexts(Protocol):
    """Raw source texts to raw translations, in their order; the model is in evaluation mode."""

    def __call__(
        self, model: TranslationModel, vocabularies: Vocabularies, texts: Sequence[str], /, *, to: str = ""
    ) -> list[str]:
        """Translate; ``to`` is the target language where there are several."""


class ScoreTexts(Protocol):
    """A metric (BLEU 0 to 100, ...) of translations against references."""

    def __call__(
        self,
        metric: TextMetric,
        translations: Sequence[str],
        references: Sequence[str],
        /,
        *,
        language: str = "",
    ) -> float:
        """Score; ``language`` is that of the text where there are several."""


@dataclass(frozen=True)
class TrainingSpec:
    """Everything that training needs; handed in by the command.

    Attributes:
        run: Where the run lives.
        config: The ``training`` section.
        seed: Of everything random.
        resolved: The whole run file with defaults, as plain values; a continuation must agree with it.
        build: Builds the untrained model, with its parameters drawn from torch's current random state.
        prepared: The corpus.
        source_bos: Whether sources begin with BOS.
        sampling: Share of subword merges left out at random (BPE-dropout), or the like; 0: none.
        metadata: Stored with every checkpoint: languages, decoding defaults.
        translate: Translates the validation set; needed where ``validation`` scores translations.
        score: Scores those translations; likewise.
        signatures: How each metric of them counts, one line each.
        notes: What the reader of the log should know, one line each.
        user_config: Text of the user's run file, kept for the record.
        complete: Brings the settings that an earlier version recorded up to this one.
        changeable: Settings that a continuation may change, by dotted key.
    """

    run: RunDirectory
    config: TrainingConfig
    seed: int
    resolved: dict[str, object]
    build: Callable[[], TranslationModel]
    prepared: Prepared
    metadata: dict[str, object]
    source_bos: bool = False
    sampling: float = 0.0
    translate: TranslateTexts | None = None
    score: ScoreTexts | None = None
    signatures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    user_config: str = ""
    complete: Complete = as_recorded
    changeable: Collection[str] = CHANGEABLE

    @property
    def begins_with_a_model(self) -> bool:
        """Whether it begins with another model's parameters, so that connections are past their start."""
        return self.config.start_from is not None or self.config.pretrained is not None
