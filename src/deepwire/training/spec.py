"""The parts of a training run before it starts, and whether a run may go on with other settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.config.section import changeable_keys, flatten, written
from deepwire.data.batches.batching import BatchSettings, UpdateStream
from deepwire.data.data_config import CorpusConfig, DataConfig
from deepwire.data.prepare.prepared import Prepared
from deepwire.data.text.noise import LineNoise
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError, UsageError
from deepwire.io.regular_files import UnreadableError, read_json
from deepwire.model.translation_model import TranslationModel
from deepwire.training.config import TextMetric, TrainingConfig

CHANGEABLE = frozenset(
    {"run", *changeable_keys(TrainingConfig, "training"), *changeable_keys(DataConfig, "data")}
)
"""Settings that may change within a run: its folder, some of text and training, and all below them."""

# What a recipe says about itself is no setting.
_NOTE = "recipe"
_ORDERED = "training.rate_factors"
_SHOWN = 60
_DIGEST = re.compile(r"[0-9a-f]{32,}")
_SHOWN_OF_DIGEST = 12

Complete = Callable[[Mapping[str, object]], Mapping[str, object]]
"""Gives settings their defaults where this version has new ones beside them, or where they change nothing."""


def as_recorded(record: Mapping[str, object]) -> Mapping[str, object]:
    """Nothing added."""
    return record


def require_same_settings(
    resolved_config: Path,
    now: Mapping[str, object],
    complete: Complete = as_recorded,
    changeable: Collection[str] = CHANGEABLE,
) -> list[str]:
    """Compare the settings of a continued run with those it was started with.

    Args:
        resolved_config: ``config.resolved.json`` of the run.
        now: The resolved settings of the present command.
        complete: Brings the record of an earlier version up to this one, so that a setting that is new since
            then is no change while it has its default, nor one that changes nothing.
        changeable: Dotted keys that may differ, with all below them.

    Returns:
        The changes that are allowed, each as ``key: old -> new``.

    Raises:
        UsageError: Listing every key whose change would make it another run.
        ModelError: If the file cannot be read.
    """
    changed = changed_settings(resolved_config, now, complete)
    shown = {key: f"{key}: {_shown(old)} -> {_shown(new)}" for key, (old, new) in changed.items()}
    allowed = {key for key in shown if any(key == one or key.startswith(f"{one}.") for one in changeable)}
    require_no_changes(resolved_config.parent, [text for key, text in shown.items() if key not in allowed])
    return [text for key, text in shown.items() if key in allowed]


def changed_settings(
    resolved_config: Path, now: Mapping[str, object], complete: Complete = as_recorded
) -> dict[str, tuple[object, object]]:
    """The settings of a run that are others now: old and new value by dotted key, sorted; None where not set.

    Args:
        resolved_config, now, complete: See `require_same_settings`.

    Raises:
        ModelError: If the file cannot be read, or is damaged.
    """
    record = read_run_file(resolved_config)
    if not record.keys() & now.keys():
        raise ModelError(
            f"{resolved_config} is damaged: it does not hold the settings of a run",
            missing_file_hint(resolved_config),
        )
    before, after = _leaves(complete(record)), _leaves(complete(now))
    keys = sorted(key for key in before.keys() | after.keys() if key.split(".")[0] != _NOTE)
    both = {key: (before.get(key), after.get(key)) for key in keys}
    return {key: (old, new) for key, (old, new) in both.items() if old != new}


def _leaves(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings by dotted key, and the order of patterns of which the last that matches counts."""
    leaves = flatten(settings)
    patterns = [key.removeprefix(f"{_ORDERED}.") for key in leaves if key.startswith(f"{_ORDERED}.")]
    return leaves | ({_ORDERED: patterns} if len(patterns) > 1 else {})


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


def require_same_digests(
    run: Path, before: Mapping[str, object], now: Mapping[str, str], resolved: Mapping[str, object]
) -> None:
    """Refuse other text or vocabularies than those that the run was started with.

    Args:
        run: Its directory.
        before, now: Digests, and weights of corpora.
        resolved: The resolved settings of the present command, which name the corpora.

    Raises:
        UsageError: Listing what changed.
    """
    shown = {name: name for name in now} | {"text": f"text of {_corpora(resolved)}"}
    require_no_changes(
        run,
        [
            f"{shown[name]}: {_shown_digest(before.get(name))} -> {_shown_digest(now[name])}"
            for name in now
            if before.get(name) != now[name]
        ],
    )


def _corpora(resolved: Mapping[str, object]) -> str:
    """The settings that name the text of a run, with the corpora: `data.train (a, b) or data.valid (c)`."""
    data = resolved.get("data")
    if not isinstance(data, Mapping):  # not made from a run file
        return "data.train or data.valid"
    labels = {
        f"data.{role}": ", ".join(
            CorpusConfig.model_validate(corpus).label for corpus in data.get(role) or ()
        )
        for role in ("train", "valid")
    }
    return " or ".join(f"{role} ({names})" for role, names in labels.items() if names)


def _shown_digest(value: object) -> object:
    """The beginning of a digest, which is enough to tell two apart; anything else as it is."""
    is_digest = isinstance(value, str) and _DIGEST.fullmatch(value)
    return f"{value}"[:_SHOWN_OF_DIGEST] if is_digest else value


def require_same_text(run: RunDirectory, text: str, resolved: Mapping[str, object]) -> None:
    """Refuse other text than that of a run; what its record does not say is not compared.

    Args:
        run: The run.
        text: `Prepared.digest` of the text that is there now.
        resolved: See `require_same_digests`.

    Raises:
        UsageError: It was trained on other text.
    """
    recorded: object = None
    with suppress(ModelError):
        recorded = read_json(run.environment).get("digests")
    if isinstance(recorded, dict) and "text" in recorded:
        require_same_digests(run.path, recorded, {"text": text}, resolved)


def require_no_changes(run: Path, changes: list[str]) -> None:
    """Raise the error that lists ``changes``; nothing where there are none.

    Raises:
        UsageError: If there are any.
    """
    if changes:
        raise UsageError(
            f"{run}: cannot go on, because settings differ from the original run: {'; '.join(changes)}",
            "undo the change, train elsewhere with run=DIR, or start over with --fresh (the old run is kept)",
        )


def _shown(value: object) -> str:
    text = written(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


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
        sources: Sequence[str],
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
        noise: Of the training lines; None: they are read as they are.
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
    source_bos: bool = False
    sampling: float = 0.0
    noise: LineNoise | None = None
    translate: TranslateTexts | None = None
    score: ScoreTexts | None = None
    examine: Callable[[TranslationModel], dict[str, object]] | None = None
    signatures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    user_config: str = ""
    changes: tuple[str, ...] = ()

    @property
    def begins_with_a_model(self) -> bool:
        """Whether it begins with another model's parameters, so that connections are past their start."""
        return self.config.start_from is not None or self.config.pretrained is not None

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
            noise=self.noise,
            aligned=self.config.guided_alignment is not None,
        )
        return UpdateStream(
            prepared.train, settings, seed=self.seed, vocabularies=prepared.vocabularies, share=share
        )
