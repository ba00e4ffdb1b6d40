"""The parts of a training run before it starts, and whether a run may go on with other settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.config.section import flatten, written
from deepwire.data.batches.batching import BatchSettings, UpdateStream
from deepwire.data.prepare.prepared import Prepared
from deepwire.errors import ModelError, UsageError
from deepwire.io.regular_files import UnreadableError, read_json
from deepwire.model.translation_model import TranslationModel
from deepwire.training.config import TrainingConfig

_SHOWN = 60


def require_same_settings(
    run: Path,
    before: Mapping[str, object],
    now: Mapping[str, object],
    changeable: Collection[str],
) -> list[str]:
    """Compare the settings of a continued run with those it was started with.

    Args:
        run: Its directory.
        before, now: Resolved settings, both completed with the defaults of this version.
        changeable: Dotted keys that may differ, with all below them.

    Returns:
        The changes that are allowed, each as ``key: old -> new``.

    Raises:
        UsageError: Listing every key whose change would make it another run.
    """
    allowed, refused = list[str](), list[str]()
    for key, (old, new) in changed_settings(before, now).items():
        fits = any(key == one or key.startswith(f"{one}.") for one in changeable)
        (allowed if fits else refused).append(f"{key}: {_shown(old)} -> {_shown(new)}")
    require_no_changes(run, refused)
    return allowed


def changed_settings(
    before: Mapping[str, object], now: Mapping[str, object]
) -> dict[str, tuple[object, object]]:
    """The settings that differ: old and new value by dotted key, sorted; None where not set."""
    old, new = flatten(before), flatten(now)
    # What a recipe says about itself is no setting.
    keys = sorted(key for key in old.keys() | new.keys() if key.split(".")[0] != "recipe")
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


def read_run_file(path: Path) -> dict[str, object]:
    """A JSON file of a run that is needed to go on.

    Raises:
        ModelError: If it is missing or damaged; the hint says what is left to do.
        UnreadableError: If it cannot be read.
    """
    try:
        return read_json(path)
    except UnreadableError:
        raise
    except ModelError as error:
        raise ModelError(error.message, missing_file_hint(path)) from error


def missing_file_hint(path: Path) -> str:
    """A hint for the user where a file of a run is missing or damaged."""
    return (
        f"put back a copy of {path.name}, or begin another run with these weights: "
        f"run=DIR training.start_from={path.parent}@last"
    )


def require_same_digests(run: Path, before: Mapping[str, object], now: Mapping[str, str]) -> None:
    """Refuse other text, vocabularies or weights of corpora than those that the run was started with.

    Raises:
        UsageError: Listing what changed.
    """
    shown = {"text": "text of data.train or data.valid"}
    require_no_changes(
        run,
        [
            f"{shown.get(name, name)}: {str(before.get(name))[:_DIGEST]} -> {new[:_DIGEST]}"
            for name, new in now.items()
            if before.get(name) != new
        ],
    )


_DIGEST = 12
"""Letters of a digest that are enough to tell two apart."""


def require_same_text(run: RunDirectory, text: str) -> None:
    """Refuse other text than that of a run, by its digest; what its record does not say is not compared.

    Raises:
        UsageError: It was trained on other text.
    """
    recorded: object = None
    with suppress(ModelError):
        recorded = read_json(run.environment).get("digests")
    if isinstance(recorded, dict) and "text" in recorded:
        require_same_digests(run.path, recorded, {"text": text})


def require_no_changes(run: Path, changes: Sequence[str]) -> None:
    """Refuse to go on with other settings or text.

    Raises:
        UsageError: If there are any changes.
    """
    if changes:
        raise UsageError(
            f"{run}: cannot go on, because settings differ from the original run: {'; '.join(changes)}",
            "undo the change, train elsewhere with run=DIR, or start over with --fresh (the old run is kept)",
        )


def _shown(value: object) -> str:
    text = written(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


TranslateTexts = Callable[..., list[str]]
"""From a model in evaluation mode, its vocabularies and raw source texts to raw translations, in their order;
``to`` is the target language where there are several."""

ScoreTexts = Callable[..., float]
"""From the name of a metric, translations, references and sources to a score (BLEU 0 to 100); ``language``
is that of the text where there are several."""


@dataclass(frozen=True)
class WarmStartReport(ABC):
    """The parameters that a run took over from another model; as plain values it is its fields."""

    @abstractmethod
    def lines(self) -> list[str]:
        """The report for people."""


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
        begin: Fills a new run's model from another one; None: it begins untrained.
        source_bos: Whether sources begin with BOS.
        sampling: Share of subword merges left out at random (BPE-dropout), or the like; 0: none.
        metadata: Stored with every checkpoint: languages, decoding defaults.
        translate: Translates the validation set; needed where ``validation`` scores translations.
        score: Scores those translations; likewise.
        examine: Finds out what is stored with a checkpoint besides `metadata`; None: nothing.
        signatures: How each metric of them counts, one line each.
        notes: What the reader of the log should know, one line each.
        user_config: Text of the user's run file, kept for the record.
        changes: Settings that a continuation has changed, one line each.
    """

    run: RunDirectory
    config: TrainingConfig
    seed: int
    resolved: dict[str, object]
    build: Callable[[], TranslationModel]
    prepared: Prepared
    metadata: dict[str, object]
    begin: Callable[[TranslationModel], WarmStartReport] | None = None
    source_bos: bool = False
    sampling: float = 0.0
    translate: TranslateTexts | None = None
    score: ScoreTexts | None = None
    examine: Callable[[TranslationModel], dict[str, object]] | None = None
    signatures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    user_config: str = ""
    changes: tuple[str, ...] = ()

    def stream(self, micro_batch_tokens: int, share: tuple[int, int] = (0, 1)) -> UpdateStream:
        """The training batches of process number `share[0]` of `share[1]`."""
        prepared = self.prepared
        settings = BatchSettings(
            batch_tokens=self.config.batch_tokens,
            micro_batch_tokens=micro_batch_tokens,
            source_bos=self.source_bos,
            sampling=self.sampling,
            languages=prepared.languages,
            context=prepared.context,
            aligned=self.config.guided_alignment is not None,
        )
        return UpdateStream(
            prepared.train, settings, seed=self.seed, vocabularies=prepared.vocabularies, share=share
        )
