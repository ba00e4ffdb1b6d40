"""Fine-tuning in one step: the run file for a trained model and new text, and what the run has changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import yaml

from deepwire.api.evaluate import compare
from deepwire.api.prepare import prepare
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import (
    read_config,
    read_metadata,
    read_vocabularies,
    recorded_config,
    require_translation,
)
from deepwire.config.counts import counted
from deepwire.config.section import Section
from deepwire.config.settings_reader import canonical_settings
from deepwire.data.context import ContextConfig
from deepwire.data.data_config import DataConfig, Role
from deepwire.data.languages import Direction, Languages, named_direction
from deepwire.data.prepare.prepared import Prepared, text_digest
from deepwire.data.prepare.prepared import prepare as prepare_text
from deepwire.data.text.corpus import directed, read_pairs
from deepwire.data.text.pairs import Pair, Reservoir, is_blank
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_loading import load
from deepwire.decoding.translator import Translator
from deepwire.errors import DataError, LogFn, UsageError
from deepwire.evaluation.comparison import as_text
from deepwire.evaluation.texts import named_target, selected_target
from deepwire.io.atomic import new_folder
from deepwire.runfile import LoadedRunFile, load_run_file
from deepwire.training.session import Callback, TrainingSession, make_validator
from deepwire.training.validation import Validation

_FEWEST, _MOST = 20, 500
"""Pairs that are held out, a tenth of the text between them; models are compared on the most."""


def finetuning_run(
    model: str,
    train: Sequence[str],
    valid: str | None,
    old_valid: str | None,
    direction: Direction | None,
    overrides: Sequence[str],
    tell: LogFn,
) -> LoadedRunFile:
    """The run file that fine-tunes a model on text, with lengths that fit the text; prepares the text.

    Args:
        model: A MODEL name.
        train: One corpus or several, as `data.train` of a run file has them.
        valid: Text to validate on, as `data.valid` has it; None: a part of `train` is held out.
        old_valid: Text of what the model could do before, which `OldDomain` watches; None: nothing does.
        direction: The direction of the text; of several it must be named.
        overrides: Further settings, ``key.sub=value``.
        tell: Hears what is held out.

    Raises:
        UsageError: The model does not translate in the direction, or a setting is wrong.
        DataError: The text is missing, unusable or too little.
        ModelError: There is no such model, or it is a language model.
    """
    settings = _settings(model, direction, tell)
    several = train[0] if len(train) == 1 else f"[{', '.join(train)}]"
    text = [f"data.train={several}", f"data.valid={valid or 'null'}"]
    loaded = load_run_file(settings, [*text, *overrides], trusted=True)
    if not loaded.config.data.valid:
        folder = _hold_out(loaded.config.data, tell)
        overrides = [*overrides, f"data.train={folder / 'train'}", f"data.valid={folder / 'valid'}"]
        loaded = load_run_file(settings, [*text, *overrides], trusted=True)
    if old_valid is not None:  # its faults would show late
        prepare_text(_old_data(loaded, old_valid), seed=loaded.config.seed)
    prepared = prepare(loaded)
    _warn_of_missing_tags(model, prepared, tell)
    tokens = prepared.train.tokens[1] + len(prepared.train)  # each line ends with a symbol
    updates = math.ceil(tokens / loaded.config.training.batch_tokens)  # of an epoch
    settings["training"] = _training(model, updates, loaded.config.model.d_model)
    loaded = load_run_file(settings, [*text, *overrides], trusted=True)
    written = yaml.safe_dump(_given(loaded.config), sort_keys=False, allow_unicode=True)
    return replace(loaded, text=written)


def _settings(model: str, direction: Direction | None, tell: LogFn) -> dict[str, object]:
    """The settings of a run that goes on with a model, whatever its text."""
    folder = find_model(model)
    metadata = read_metadata(folder)
    require_translation(model, metadata)
    selected_target(model, direction)
    languages = Languages.from_metadata(metadata)
    if languages is not None:
        named = direction or languages.directions[0]
        pair: dict[str, object] = {"directions": [str(named)], "tag": languages.tag}
    elif direction is not None:
        pair = direction._asdict()
    else:
        if named_direction(metadata) is None:
            tell(f"warning: {model} does not say which languages it translates: --direction de-en does")
        pair = {side: metadata[side] for side in ("source", "target") if side in metadata}
    # Checkpoints come and go while a run goes on; its vocabulary stays.
    place = Path(model) if Path(model).exists() else Path(model.rpartition("@")[0])
    vocabulary = {"type": "existing", "folder": str(place), "joint": read_vocabularies(folder).joint}
    return {
        "run": f"runs/{place.absolute().name}-finetuned",
        "data": {
            **pair,
            "vocabulary": vocabulary,
            "source_bos": metadata.get("source_bos") is True,
            **ContextConfig.from_metadata(metadata).to_metadata(),
        },
        "model": canonical_settings(recorded_config(read_config(folder), folder)),
        "decoding": canonical_settings(DecodingConfig.model_validate(metadata.get("decoding", {}))),
    }


def _warn_of_missing_tags(model: str, prepared: Prepared, tell: LogFn) -> None:
    words = prepared.vocabularies.source
    tag = next((piece for piece in words.pieces(range(words.size)) if words.tag_of(piece)), "")
    if tag and not words.tag_of(prepared.train.source_text(0)):
        tell(f"warning: {model} reads a tag such as {tag} in front of each line, and the text has none")


def _training(model: str, updates: int, width: int) -> dict[str, object]:
    """How to fine-tune a model of this width on text of which an epoch makes so many updates."""
    every = min(max(updates // 2, 10), 1000)
    peak = float(f"{0.05 / width:.1g}")
    return {
        "start_from": model,
        "stop_after": "20e",
        "optimizer": {"type": "adamw", "betas": [0.9, 0.98]},
        "schedule": {"type": "constant", "peak": peak, "warmup": min(max(updates, 10), 500)},
        "validation": {"every": every},
        "early_stopping": {"patience": 4},
        "checkpoint": {"keep_last": 1},
        "log_every": min(every, 50),
    }


def _given(section: Section) -> dict[str, object]:
    """The settings of a section that are not at their defaults, as plain values."""
    values = section.model_dump(mode="json")
    given: dict[str, object] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if name != "type" and value == field.get_default(call_default_factory=True, validated_data={}):
            continue
        if isinstance(value, list) and value and isinstance(value[0], Section):
            given[name] = [_given(item) for item in value]
        else:
            given[name] = _given(value) if isinstance(value, Section) else values[name]
    return given


def _hold_out(data: DataConfig, tell: LogFn) -> Path:
    """A folder with the training text in two parts, the prefixes `train` and `valid`."""
    if len(data.train) > 1 or data.context.used:
        raise UsageError("of several texts, or of documents, nothing is held out", "add --valid TEXT")
    folder = data.prepared / f"held-out-{text_digest(data)[:12]}"
    if not folder.exists():
        sample, count = Reservoir(_MOST, seed=1), 0
        for pair in _usable_pairs(data, "train"):
            sample.extend([pair])
            count += 1
        chosen = sample.shuffled()[: count // 10]
        if len(chosen) < _FEWEST:
            raise DataError(
                f"{data.train[0].label}: {counted(count, 'pair')}, too few to hold some out for validation",
                f"give {10 * _FEWEST} or more, or text to validate on with --valid",
            )
        held = {(pair.source, pair.target) for pair in chosen}
        rest = (pair for pair in _usable_pairs(data, "train") if (pair.source, pair.target) not in held)
        languages = (data.source, data.target) if data.languages is None else data.languages.directions[0]
        with new_folder(folder) as temporary:
            for name, pairs in (("train", rest), ("valid", chosen)):
                source, target = (temporary / f"{name}.{language}" for language in languages)
                with source.open("w", encoding="utf-8") as left, target.open("w", encoding="utf-8") as right:
                    for pair in pairs:
                        left.write(f"{pair.source}\n")
                        right.write(f"{pair.target}\n")
    tell(f"no --valid: a part of {data.train[0].label} is held out for validation, {folder / 'valid'}.*")
    return folder


def _usable_pairs(data: DataConfig, role: Role) -> Iterator[Pair]:
    """The pairs of a role that have text on both sides."""
    for corpus in directed(data, role):
        for pair in read_pairs(corpus, data):
            if not (pair.fault or is_blank(pair.source) or is_blank(pair.target)):
                yield pair


def _old_data(loaded: LoadedRunFile, old_valid: str) -> DataConfig:
    """The `data` section of a run with text of the old domain alone, as training text."""
    return load_run_file(loaded.resolved, [f"data.train={old_valid}", "data.valid=null"]).config.data


class OldDomain(Callback):
    """Says at each validation how well the model still knows text of its old domain."""

    def __init__(self, loaded: LoadedRunFile, old_valid: str) -> None:
        self._data, self._seed = _old_data(loaded, old_valid), loaded.config.seed

    def on_start(self, session: TrainingSession) -> None:
        """Prepare the text."""
        training = session.training
        prepared = training.processes.run_on_main_first(lambda: prepare_text(self._data, seed=self._seed))
        spec = replace(training.spec, prepared=replace(training.spec.prepared, valid=prepared.train))
        self._validator = make_validator(spec, training.processes)

    def after_validation(self, session: TrainingSession, validation: Validation) -> None:  # noqa: ARG002 - the contract
        """Score the text and add a line to the log."""
        trainer, run = session.trainer, session.training
        assert self._validator is not None, "there is text"
        with trainer.averaged(), trainer.strategy.whole() as model:
            precision, signals = trainer.objective.precision, run.signals
            found = self._validator.run(model, precision, session.update, lambda: signals.stop_wanted)
        if found is not None:
            scores = " ".join(f"{name} {score:.3f}" for name, score in found.scores.items())
            run.log.say(f"u {session.update} old domain {scores}")


def compared(model: str, loaded: LoadedRunFile, old_valid: str | None) -> Iterator[str]:
    """The scores of a model and of the run that went on with it, with tests of their differences."""
    data, device = loaded.config.data, loaded.config.training.device
    to = "" if data.languages is None else data.languages.targets[0]
    language = to or named_target({"target": data.target})
    texts = {"new domain": _usable_pairs(data, "valid")}
    if old_valid is not None:
        texts["old domain"] = _usable_pairs(_old_data(loaded, old_valid), "train")
    models = {name: load(name, device) for name in (model, str(loaded.config.run))}
    for name, text in texts.items():
        pairs = list(islice(text, _MOST))
        tags = [models[model].vocabularies.target.tag_of(pair.target) for pair in pairs]
        references = [pair.target.removeprefix(tag) for pair, tag in zip(pairs, tags, strict=True)]
        sources = [pair.source for pair in pairs]
        losses = [_loss(each, pairs, to) for each in models.values()]
        yield f"{name}, {counted(len(pairs), 'pair')}: loss {losses[0]:.3f} -> {losses[1]:.3f} nats a subword"
        systems = {system: each.translate(sources, tags, to=to or None) for system, each in models.items()}
        yield as_text(compare(systems, references, metrics=("bleu", "chrf"), language=language))


def _loss(model: Translator, pairs: Sequence[Pair], to: str) -> float:
    scores = list(model.score([(pair.source, pair.target) for pair in pairs], to=to or None))
    tokens = sum(len(score.token_log_probabilities) for score in scores)
    return -sum(score.log_probability for score in scores) / tokens
