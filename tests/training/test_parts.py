from __future__ import annotations

import json
import platform
import re
import signal
from pathlib import Path

import pytest
import torch

from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import ModelError, UsageError
from deepwire.ops.allocator import give_memory_back, keep_memory
from deepwire.training.config import EarlyStoppingConfig, Metric
from deepwire.training.device import PrecisionPolicy, memory_in_use
from deepwire.training.optimizers.optimizer import StepResult
from deepwire.training.progress import Averages, Display, Meter, TrainingStatus, human_time, perplexity, short
from deepwire.training.run import Patience, TrainingState
from deepwire.training.spec import require_same_digests, require_same_settings
from deepwire.training.stopping import Signals

CPU = torch.device("cpu")


def test_patience_counts_scores_without_improvement() -> None:
    config, patience = EarlyStoppingConfig(metric="bleu", patience=2, min_improvement=0.5), Patience()
    exhausted = []
    for score in (
        {"bleu": 10.0},
        {"loss": 1.0},
        {"bleu": 10.4},
        {"bleu": 10.6},
        {"bleu": 1.0},
        {"bleu": 11.0},
    ):
        patience.update(config, score)
        exhausted.append(patience.exhausted(config))
    assert exhausted == [False, False, False, False, False, True]
    assert patience.best == 10.6


def test_patience_takes_lower_losses_and_no_nan() -> None:
    config, patience = EarlyStoppingConfig(patience=3), Patience()
    for loss in (float("nan"), 3.0, 2.0, float("nan"), 2.5):
        patience.update(config, {"loss": loss})
    assert (patience.best, patience.waited) == (2.0, 2)


def test_patience_begins_anew_with_another_metric() -> None:
    patience = Patience()
    scores = {"bleu": 30.0, "chrf": 55.0, "ter": 50.0}
    for metric in ("chrf", "bleu", "ter", "ter"):
        patience.update(EarlyStoppingConfig(metric=metric), scores)
    assert (patience.best, patience.waited, patience.metric) == (50.0, 1, "ter")


@pytest.mark.parametrize(
    ("metric", "rising", "falling"),
    [
        ("bleu", 0, 2),
        ("chrf", 0, 2),
        ("chrf++", 0, 2),
        ("ter", 2, 0),
        ("loss", 2, 0),
        ("nll", 2, 0),
        ("perplexity", 2, 0),
    ],
)
def test_patience_knows_the_direction_of_each_metric(metric: Metric, rising: int, falling: int) -> None:
    for values, waited in (((1.0, 2.0, 3.0), rising), ((3.0, 2.0, 1.0), falling)):
        patience = Patience()
        for value in values:
            patience.update(EarlyStoppingConfig(metric=metric), {metric: value})
        assert patience.waited == waited


def step(norm: float, finite: bool) -> StepResult:
    return StepResult(torch.tensor(norm), torch.tensor(finite))


def sums(*values: float) -> list[torch.Tensor]:
    return [torch.tensor(value) for value in values]


def test_meter_averages_over_tokens_and_leaves_bad_updates_out() -> None:
    meter = Meter(CPU)
    meter.add(sums(20.0, 10.0), 10, step(1.0, True))
    meter.add(sums(float("nan"), float("inf")), 1000, step(float("nan"), False))
    meter.add(sums(120.0, 60.0), 30, step(3.0, True))
    found = meter.averages()
    assert (found.loss, found.nll, found.gradient_norm, found.tokens) == (3.5, 1.75, 2.0, 40)
    assert meter.take_finite() == [True, False, True]
    assert meter.take_finite() == []
    other = Meter(CPU)
    other.load_state(meter.state())
    assert other.averages() == found
    meter.reset()
    assert meter.averages().tokens == 0


def test_state_comes_back_to_the_last_bit() -> None:
    from deepwire.data.batches.batching import StreamPosition

    state = TrainingState(
        StreamPosition(3, 1, 4, 99),
        update=99,
        epochs=1 / 3,
        patience=Patience(0.1 + 0.2, 4),
        scores={"loss": 1 / 7},
        interval=[1e-300, 2 / 3],
    )
    assert TrainingState.from_json(state.to_json()) == state


@pytest.mark.parametrize(
    "value", [{}, {"position": {}}, {"position": {"epoch": "x"}, "patience": {}}, {"x": 1}]
)
def test_a_damaged_state_is_named(value: dict[str, object]) -> None:
    with pytest.raises(ModelError):
        TrainingState.from_json(value)


@pytest.mark.parametrize(
    ("key", "value"),
    {
        "epoch": 10**18,
        "pairs": -1,
        "steps": 2.5,
        "update": "20",
        "pieces": True,
        "seconds": float("nan"),
        "scores": {"loss": "low"},
        "interval": [None],
        "position.epoch": 10**18,
        "position.window": 10**18,
        "position.number": 21,
        "patience.waited": "long",
        "patience.best": "low",
    }.items(),
)
def test_a_state_that_makes_no_sense_is_refused(key: str, value: object) -> None:
    from deepwire.data.batches.batching import StreamPosition

    state = json.loads(json.dumps(TrainingState(StreamPosition(number=20), update=20).to_json()))
    assert TrainingState.from_json(state).update == 20
    *inner, name = key.split(".")
    (state[inner[0]] if inner else state)[name] = value
    with pytest.raises(ModelError, match="the stored training state is damaged"):
        TrainingState.from_json(state)


def test_epochs_are_counted_by_pairs() -> None:
    from deepwire.data.batches.batching import StreamPosition

    state = TrainingState(StreamPosition())
    seen = []
    for epoch, pairs in ((0, 4), (0, 6), (1, 5), (1, 5), (2, 1)):
        state.pass_epoch(epoch, pairs, 10)
        seen.append(state.epochs)
    assert seen == [0.4, 1.0, 1.5, 2.0, 2.1]


def test_number_formats_are_kept_while_they_serve() -> None:
    chosen = PrecisionPolicy("fp32", "medium", "cpu")
    assert chosen.serves("auto", CPU)
    assert chosen.serves("fp32", CPU)
    assert not chosen.serves("bf16", CPU)
    assert not chosen.serves("auto", torch.device("cuda", 0))


def test_what_is_asked_for_is_taken() -> None:
    assert PrecisionPolicy.choose("bf16", CPU).precision == "bf16"
    assert PrecisionPolicy.choose("fp32", CPU) == PrecisionPolicy("fp32", "highest", "cpu")
    assert PrecisionPolicy.choose("auto", CPU).precision in ("fp32", "bf16")


def test_keeping_memory_is_harmless() -> None:
    assert keep_memory() == (platform.libc_ver()[0] == "glibc")
    assert float(torch.ones(5_000_000).sum()) == 5_000_000


@pytest.mark.skipif(not keep_memory(), reason="needs glibc")
def test_kept_memory_is_given_back_when_asked_for() -> None:
    """Also what lies below memory that is still in use."""
    blocks = [torch.ones(1 << 18) for _ in range(80)]  # a MiB each
    last = torch.ones(1 << 18)
    full = memory_in_use(CPU)
    del blocks
    kept = memory_in_use(CPU)
    assert give_memory_back()
    assert full - kept < 20 << 20
    assert kept - memory_in_use(CPU) > 60 << 20
    assert float(last.sum()) == 1 << 18


def test_signals_ask_and_a_second_interrupt_stops_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Signals() as signals:
        signal.raise_signal(signal.SIGUSR1)
        assert (signals.save, signals.stop_wanted) == (False, False)
        signals.settle(ProcessGroup())
        assert (signals.save, signals.stop, signals.exit_code) == (True, None, 0)
        signals.save = False
        signal.raise_signal(signal.SIGINT)
        assert signals.stop_wanted
        signals.settle(ProcessGroup())
        assert (signals.save, signals.stop, signals.exit_code) == (False, signal.SIGINT, 130)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_digests_are_listed() -> None:
    old, new = "0123456789ab" + 52 * "c", "ba9876543210" + 52 * "c"
    data = {"train": [{"prefix": "text/a"}, {"tsv": "b.tsv", "name": "more"}], "valid": [{"prefix": "v"}]}
    require_same_digests(Path("run"), {"text": "a", "old": "b"}, {"text": "a"}, {})
    changed = re.escape(
        "text of data.train (a, more) or data.valid (v): 0123456789ab -> ba9876543210; "
        "vocabularies: None -> d"
    )
    with pytest.raises(UsageError, match=changed):
        require_same_digests(Path("run"), {"text": old}, {"text": new, "vocabularies": "d"}, {"data": data})
    with pytest.raises(UsageError, match=r"text of data\.train or data\.valid: a -> c"):
        require_same_digests(Path("run"), {"text": "a"}, {"text": "c"}, {})


def test_changes_are_listed_by_key(tmp_path: Path) -> None:
    factors = {"encoder.*": 0.1, "*.bias": 2}
    before = {"training": {"ema": {"decay": 0.9}, "rate_factors": factors, "early_stopping": None}}
    stored = tmp_path / "config.resolved.json"
    stored.write_text(json.dumps(before))
    with pytest.raises(UsageError) as caught:
        require_same_settings(stored, {"training": {"rate_factors": dict(reversed(factors.items()))}})
    assert caught.value.message.partition("original run: ")[2].split("; ") == [
        "training.ema.decay: 0.9 -> null",
        'training.rate_factors: ["encoder.*", "*.bias"] -> ["*.bias", "encoder.*"]',
    ]
    later = {"training": {**before["training"], "early_stopping": {"patience": 3}}}
    assert require_same_settings(stored, later) == ["training.early_stopping.patience: null -> 3"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0.0"),
        (9.24, "9.2"),
        (99.96, "100"),
        (999, "999"),
        (18_234, "18.2k"),
        (3.1e9, "3.1G"),
        (2e13, "20T"),
        (perplexity(1000.0), "inf"),
        (perplexity(float("nan")), "nan"),
    ],
)
def test_short_numbers(number: float, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0.4, "0s"), (45, "45s"), (99.4, "99s"), (100, "2m"), (4320, "1h12"), (277_200, "3d05h")],
)
def test_times_as_people_say_them(seconds: float | None, text: str) -> None:
    assert human_time(seconds) == text


def test_lines_go_to_stderr_and_with_the_time_to_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    standing = TrainingStatus(2000, 1.372, 0.5, 60.0, 4320.0, 3.5e-4, 3_100_000_000)
    averages = Averages(4.113, 3.2, 0.61, 100, 18_200.0)
    with Display(tmp_path / "log.txt") as display:
        display.train_line(standing, averages)
        display.valid_line(2000, {"loss": 3.0, "nll": 2.0, "perplexity": 7.39, "bleu": 31.234}, "best")
    captured = capsys.readouterr()
    expected = "u 2000 ep 1.37 loss 4.113 nll 3.200 ppl 24.5 lr 3.5e-04 gn 0.61 tok/s 18.2k eta 1h12 mem 3.1G"
    assert captured.out == ""
    assert captured.err.splitlines() == [
        expected,
        "u 2000 valid loss 3.000 nll 2.000 ppl 7.4 bleu 31.23 (best)",
    ]
    assert expected in (tmp_path / "log.txt").read_text()


def test_an_unexpected_error_goes_to_the_log_with_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Display(tmp_path / "log.txt", quiet=True):
        raise ZeroDivisionError("boom")
    assert "Traceback" in (tmp_path / "log.txt").read_text()
    with pytest.raises(UsageError), Display(tmp_path / "log.txt", quiet=True):
        raise UsageError("a clear line", "a hint")
    assert "error: a clear line" in (tmp_path / "log.txt").read_text()
