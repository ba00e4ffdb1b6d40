"""Is a run normal? Its text, settings, learning rate and curve, each beside what is usual."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from deepwire.checkpoint.model_files import read_tensors
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import OPTIMIZER, WEIGHTS
from deepwire.config.counts import counted
from deepwire.data.batches.token_store import StoreSide, TokenStore
from deepwire.data.data_config import DataConfig
from deepwire.data.prepare.prepared import Prepared, prepare
from deepwire.data.selection import check_corpora, language_warnings
from deepwire.data.vocabulary import UNK
from deepwire.errors import DataError, ModelError
from deepwire.evaluation.texts import read_text
from deepwire.lab.subject import run_file_of
from deepwire.model.connections.residual import PostNormConfig
from deepwire.runfile import RunFile
from deepwire.training.log import number_of, read_records
from deepwire.training.optimizers.optimizer import AdamSection

# Text.
_SAMPLES, _COPIES, _LEAKED, _DROPPED = 1000, 0.1, 0.02, 0.3
_RATIO = 0.6
"""Tokens of one side for a token of the other: languages that are translated into each other lie above."""
_BLOCK, _MOST_BLOCKS, _FEWEST_PAIRS, _LEAST_SPREAD, _LAGS = 500, 2000, 200, 0.05, (0, -3, -2, -1, 1, 2, 3)
_SHIFTED, _MOST_SHIFTED, _UNRELATED = 0.25, 0.02, 0.2
"""By how much the lengths of shifted lines correlate better; the share of a text in which that may be chance;
and what is no correlation."""
_MOST_TOKENS = 20_000_000
"""What is counted of a text: more would tell nothing new."""
_UNKNOWN, _RARE, _MOST_RARE = 0.02, 10, 0.5
_LONG, _SHORT, _UNSPACED = 1.5, 3.5, 10
"""Pieces of a word: above the first number no vocabulary is too large, above the second it is too small, and
above the third, words are not separated by spaces."""

# Settings.
_DROPOUT, _SMOOTHING, _TOKENS = 0.5, 0.4, 300

# Learning.
_SMALL_STEP, _LARGE_STEP = 5e-4, 1.5e-2
"""The change of a matrix in an update at the highest rate, as a share of the matrix."""
_CANCELLING, _TURNING, _STEADY = 0.5, 0.85, 1.3
"""How well gradients agree, in multiples of chance: at too high a rate each undoes the last, at too low a one
all say the same. Below the first number large steps are behind the model already."""
_YOUNG, _SPIKE, _RISE, _FALL, _FEWEST_VALIDATIONS, _DEEP = 250, 1.0, 0.05, 0.01, 4, 10
_OURS = {250: 0.61, 500: 0.48, 1000: 0.39, 2000: 0.32, 4000: 0.30, 8000: 0.28}
"""Validation loss by update, as a share of the entropy of single pieces: medians of our 90 runs, of 8 from
update 4,000 on, on the 29,000 captions of examples/multi30k, with 2.5 million parameters, 4,000 pieces and
940 target tokens an update; see benchmarks/results/studies."""
_OF_OURS, _LEARNED_NOTHING = 2.0, 0.95
_ALIKE, _LEARNED = 0.25, 0.6

Records = Sequence[Mapping[str, object]]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Sign:
    """One thing that was looked at.

    Attributes:
        subject: Its name.
        state: ``odd`` if it needs attention, ``unknown`` where it cannot be judged.
        measured: The measurement, and what is usual.
        advice: One thing to try; empty where nothing is odd.
    """

    subject: str
    state: Literal["ok", "odd", "unknown"]
    measured: str
    advice: str = ""


def _sign(subject: str, odd: bool, measured: str, advice: str) -> Sign:
    return Sign(subject, "odd" if odd else "ok", measured, advice if odd else "")


def examine(name: str, progress: Callable[[str, int], None] | None = None) -> list[Sign]:
    """All signs of a run: odd ones first, and among these what causes others before what follows from it.

    Training may be under way. `progress` hears which text is read, and how many pairs of it.

    Raises:
        ModelError: This is no run directory, or its files are damaged.
        DataError: What training logged is damaged.
    """
    run = RunDirectory(Path(name))
    if not run.resolved_config.exists():
        raise ModelError(f"{name}: is no run directory", "name the folder that `deepwire train` made")
    config, signs, entropy = run_file_of(run), list[Sign](), math.nan
    try:
        signs += _text(config.data, progress)
        prepared = prepare(config.data, seed=config.seed)
    except DataError as error:
        signs.append(Sign("text", "unknown", f"not looked at: {error.message}"))
    else:
        if not prepared.reused:
            measured = "changed since the run began, or no longer prepared: it was prepared again"
            signs.append(Sign("text", "unknown", measured))
        signs += [] if prepared.train.packed else _pairs(prepared.train)
        signs += _vocabulary(prepared, given=config.data.vocabulary.type == "existing")
        entropy = _entropy(prepared.train)
    signs += [_settings(config), *_learning(run, config, entropy)]
    return sorted(signs, key=lambda sign: sign.state != "odd")


def _text(data: DataConfig, progress: Callable[[str, int], None] | None) -> Iterator[Sign]:
    reports = check_corpora(data, samples=_SAMPLES, on_progress=progress).reports
    for role, report in reports.items():
        odd = list[tuple[str, str]]()
        if report.labels[0]:
            pairs = report.samples()
            copied = sum(pair.source == pair.target for pair in pairs) / len(pairs)
            if copied > _COPIES:
                said = f"both sides are the same in {copied:.0%} of the pairs"
                odd.append((said, "set data.filters.drop_copies=true"))
            sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
            advice = "see data.source and data.target, and the names of the files"
            odd += [(warning, advice) for warning in language_warnings(report.labels, sides)]
        share = 1 - report.kept / report.pairs
        if share > _DROPPED:
            odd.append((f"{share:.0%} of the lines are dropped: {report.main_reason()}", "see data.filters"))
        leaked = report.also_in_training / report.kept
        if leaked > _LEAKED:
            said = f"{leaked:.0%} of the pairs are also in the training text, so their scores are too good"
            odd.append((said, "remove them from the training text, and train again"))
        for measured, advice in odd:
            yield Sign(f"{role} text", "odd", measured, advice)
        if not odd:
            yield Sign(f"{role} text", "ok", f"{report.kept:,} of {report.pairs:,} lines are used")


def _pairs(store: TokenStore) -> Iterator[Sign]:
    """Whether lines are translations of each other, as their lengths show."""
    starts = range(0, len(store), max(_BLOCK, len(store) // _MOST_BLOCKS))
    by_lag = np.array([_correlations(store, slice(start, start + _BLOCK)) for start in starts])
    by_lag = by_lag[np.isfinite(by_lag[:, 0])]
    if not len(by_lag):
        yield Sign("pairs of lines", "unknown", "too few to judge, or all of one length")
    else:
        correlation, best = float(np.median(by_lag[:, 0])), np.nanmax(by_lag, axis=1)
        measured = f"lengths of both sides correlate by {correlation:.2f} (usual: 0.5 and more)"
        shifted = best > by_lag[:, 0] + _SHIFTED
        odd = float(shifted.mean()) > _MOST_SHIFTED
        if odd:
            first = int(np.argmax(shifted))
            lag = _LAGS[int(np.nanargmax(by_lag[first]))]
            measured += f"; in {shifted.mean():.0%} of the text source N fits target N{lag:+d} better"
            measured += f" ({best[first]:.2f})"
        advice = "align the text again: line by line, both sides must say the same"
        yield _sign("pairs of lines", odd or correlation < _UNRELATED, measured, advice)
    source, target = store.tokens
    ratio = target / max(source, 1)
    measured = f"the target has {ratio:.2f} tokens for each of the source (usual: 0.7 to 1.4)"
    advice = "look for lines that are cut or hold several sentences: `deepwire data check` shows pairs"
    yield _sign("length of lines", not _RATIO < ratio < 1 / _RATIO, measured, advice)


def _correlations(store: TokenStore, block: slice) -> list[float]:
    """How the lengths of sources correlate with those of targets `_LAGS` lines further on; NaN: unknown."""
    source, target = (np.log(1 + side.lengths[block]) for side in (store.source_side, store.target_side))
    lines = np.arange(len(source)) if store.lines is None else store.lines[block]
    found = list[float]()
    for lag in _LAGS:
        near = np.roll(lines, -lag) - lines == lag
        ours, theirs = source[near], np.roll(target, -lag)[near]
        enough = len(ours) >= _FEWEST_PAIRS and min(ours.std(), theirs.std()) > _LEAST_SPREAD
        found.append(float(np.corrcoef(ours, theirs)[0, 1]) if enough else math.nan)
    return found


def _vocabulary(prepared: Prepared, *, given: bool) -> Iterator[Sign]:
    """Whether the text has enough of every piece, and whether pieces are longer than letters.

    Of a vocabulary that comes from a model (`given`) only unknown tokens are judged.
    """
    target = prepared.train.target_side
    counts = _counts(target)
    if prepared.vocabularies.joint:
        counts += _counts(prepared.train.source_side)
    unknown, rare = float(counts[UNK] / counts.sum()), float((counts[UNK + 1 :] < _RARE).mean())
    measured = f"{unknown:.1%} of the tokens are unknown (usual: none, of words up to 2 %)"
    advice = "take a model that knows these characters" if given else "set data.vocabulary.type=bpe"
    yield _sign("unknown tokens", unknown > _UNKNOWN, measured, advice)
    if given:  # its size is that of another text
        return
    text = target.text_bytes[:_MOST_TOKENS]
    spaces = np.count_nonzero(text == ord(" ")) / max(len(text), 1) * len(target.text_bytes)
    pieces = float(len(target.tokens) / (spaces + len(target.lengths)))
    measured = f"{rare:.0%} of {len(counts):,} pieces occur less than {_RARE} times (usual: up to a third)"
    measured += f"; {pieces:.2f} for a word (usual: 1.1 to 2.5)" if pieces < _UNSPACED else ""
    large = rare > _MOST_RARE and not _LONG < pieces < _UNSPACED
    small = _SHORT < pieces < _UNSPACED
    advice = f"set a {'larger' if small else 'smaller'} data.vocabulary.size"
    yield _sign("vocabulary", large or small, measured, advice)


def _counts(side: StoreSide) -> Counts:
    return np.bincount(side.tokens[:_MOST_TOKENS], minlength=side.vocabulary)


def _entropy(store: TokenStore) -> float:
    """Entropy of single target pieces in nats: the loss of a model that knows only how frequent they are."""
    counts = _counts(store.target_side)
    ends = counts.sum() * len(store) / len(store.target_side.tokens)
    shares = np.append(counts[counts > 0], ends) / (counts.sum() + ends)
    return float(-(shares * np.log(shares)).sum())


def _settings(config: RunFile) -> Sign:
    dropout = max(config.model.dropout.model_dump().values())
    smoothing = config.training.label_smoothing
    measured = f"dropout up to {dropout:g} (usual: 0 to 0.3), label smoothing {smoothing:g} (usual: 0 to 0.2)"
    advice = "set model.dropout and training.label_smoothing to 0.1"
    return _sign("regularisation", dropout > _DROPOUT or smoothing > _SMOOTHING, measured, advice)


def _learning(run: RunDirectory, config: RunFile, entropy: float) -> Iterator[Sign]:
    records = [record for record in read_records(run.metrics) if record.get("nll") is not None]
    train, valid = ([each for each in records if each.get("kind") == kind] for kind in ("train", "valid"))
    if skipped := len(read_records(run.bad_batch)):
        measured = f"loss or gradient of {counted(skipped, 'update')} was not finite"
        yield Sign("learning rate", "odd", measured, "set a third of the rate in training.schedule")
    update = int(number_of(train[-1], "update")) if train else 0
    warmup = config.training.schedule.warmup_in(config.training.max_updates)
    if update < max(_YOUNG, 2 * warmup):
        measured = f"too young to judge: {counted(update, 'update')} logged, and a warm-up of {warmup:,}"
        yield Sign("learning", "unknown", measured)
        return
    yield from _rate(run, config, train)
    tokens = number_of(train[-1], "target_tokens") / update
    measured = f"{tokens:,.0f} target tokens an update (usual: 500 and more)"
    yield _sign("size of updates", tokens < _TOKENS, measured, "set a larger training.batch_tokens")
    yield from _overfitting(train, valid)
    share = min(number_of(record, "nll") for record in valid or train) / entropy
    if config.data.text is None and math.isfinite(share):
        yield _loss(config, update, share)
    if share < _LEARNED:
        yield from _translations(run)


def _rate(run: RunDirectory, config: RunFile, train: Records) -> Iterator[Sign]:
    """Whether the learning rate is too high or too low."""
    losses, rates = ([number_of(each, name) for each in train] for name in ("nll", "learning_rate"))
    spike = max(loss - least for loss, least in zip(losses, accumulate(losses, min), strict=True))
    if spike > _SPIKE:
        measured = f"the training loss has risen by {spike:.2f} nats (usual: by less than {_SPIKE:g})"
        yield Sign("learning rate", "odd", measured, "set a third of the rate in training.schedule")
    optimizer, checkpoints = config.training.optimizer, run.checkpoints()
    if not isinstance(optimizer, AdamSection) or not checkpoints:
        return
    measures = _adam_measures(checkpoints[-1].path, optimizer)
    if measures is None:
        return
    agreement, step = measures[0], measures[1] * max(rates)
    measured = (
        f"at the highest, {max(rates):.2g}, an update changes a matrix by {step:.2%} (usual: 0.1 % to 1 %); "
        f"gradients agree {agreement:.2f} times as well as by chance (usual: 0.9 to 1.2)"
    )
    tuned = config.training.start_from is not None or config.training.pretrained is not None
    low = step < _SMALL_STEP and agreement > _STEADY and not tuned
    high = agreement < (_TURNING if step > _LARGE_STEP else _CANCELLING)
    advice = f"{'divide' if high else 'multiply'} the rate in training.schedule by 10"
    yield _sign("learning rate", low or high, measured, advice)


def _adam_measures(checkpoint: Path, adam: AdamSection) -> tuple[float, float] | None:
    """Agreement of the gradients, and size of a step at rate 1 beside the matrix; medians over matrices.

    The agreement is the root mean square of Adam's step beside that of gradients that are nothing but noise:
    sqrt((1 - beta1) / (1 + beta1)). None where Adam does not move most of the matrices, as beside Muon.
    """
    weights, moments = (read_tensors(checkpoint / name, torch.device("cpu")) for name in (WEIGHTS, OPTIMIZER))
    matrices = {name: weight for name, weight in weights.items() if weight.dim() > 1}
    chance = math.sqrt((1 - adam.betas[0]) / (1 + adam.betas[0]))
    agreements, steps = list[float](), list[float]()
    for name, weight in matrices.items():
        if f"exp_avg_sq.{name}" not in moments:
            continue
        first, second, count = (moments[f"{key}.{name}"] for key in ("exp_avg", "exp_avg_sq", "step"))
        corrections = [1 - beta ** count.item() for beta in adam.betas]
        step = first / corrections[0] / ((second / corrections[1]).sqrt() + adam.eps)
        agreements.append(step.square().mean().sqrt().item() / chance)
        steps.append((step.norm() / weight.norm()).item())
    if len(steps) < len(matrices) / 2:
        return None
    return statistics.median(agreements), statistics.median(steps)


def _overfitting(train: Records, valid: Records) -> Iterator[Sign]:
    """Whether the validation loss rises, still falls, or stands."""
    if len(valid) < _FEWEST_VALIDATIONS:
        yield Sign("validation loss", "unknown", f"{counted(len(valid), 'validation')}: too few to judge")
        return
    losses, now = [number_of(record, "nll") for record in valid], number_of(train[-1], "nll")
    best = min(losses)
    at, rise = int(number_of(valid[losses.index(best)], "update")), losses[-1] - best
    then = next((number_of(each, "nll") for each in train if number_of(each, "update") >= at), now)
    if rise > _RISE * max(best, 1) and now < then:
        measured = f"has risen by {rise:.2f} nats since update {at:,}, its best, while the training loss fell"
        measured += f" from {then:.2f} to {now:.2f}: the model learns its training text by heart"
        advice = "use more text or more dropout; stop early: training.early_stopping={patience: 5}"
        yield Sign("validation loss", "odd", measured, advice)
        return
    change = losses[-1] / losses[len(losses) * 3 // 4 - 1] - 1
    goes_on = "it still falls, so a longer run learns more" if change < -_FALL else "it no longer falls"
    measured = f"{losses[-1]:.2f} nats, {change:+.1%} in the last quarter of the run: {goes_on}"
    yield Sign("validation loss", "ok", measured)


def _loss(config: RunFile, update: int, share: float) -> Sign:
    ours = float(np.interp(math.log(update), np.log(list(_OURS)), list(_OURS.values())))
    measured = (
        f"{share:.0%} of the loss of a model that knows only how frequent pieces are; our runs on 29,000 "
        f"captions had {ours:.0%} after as many updates, and harder text may have twice that"
    )
    stacks = [config.model.stack(side) for side in config.model.sides]
    advice = "see the other lines; without any, try another rate, and more updates"
    if any(stack.layers >= _DEEP and isinstance(stack.connection, PostNormConfig) for stack in stacks):
        advice = "deep post-norm models learn late: lengthen the warm-up, or set connection: pre_norm"
    return _sign("loss", share > min(_LEARNED_NOTHING, _OF_OURS * ours), measured, advice)


def _translations(run: RunDirectory) -> Iterator[Sign]:
    """Whether the last translations of the validation set differ from each other."""
    for path in sorted(run.translations.glob("update-*.txt"))[-1:]:
        lines = read_text(path).lines
        line, count = Counter(lines).most_common(1)[0]
        measured = f"{count / len(lines):.0%} of {path.name} are the same line, {line[:40]!r} (usual: few)"
        advice = "train longer; if that changes nothing, see that data.valid is of the same languages"
        yield _sign("translations", count > _ALIKE * len(lines), measured, advice)
