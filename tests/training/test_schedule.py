from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepwire.training.schedule import (
    ConstantConfig,
    CosineConfig,
    InverseSqrtConfig,
    NoamConfig,
    Schedule,
    WarmupStableDecayConfig,
)
from deepwire.training.testing import check_schedule

# Rates that fairseq sets after n finished updates, for (peak, warm-up, initial).
FAIRSEQ = {
    (0.0007, 4000, 1e-7): {
        0: 1e-07,
        1: 2.74975e-07,
        10: 1.84975e-06,
        1000: 0.000175075,
        3999: 0.000699825025,
        4000: 0.0007,
        4001: 0.0006999125164028327,
        8000: 0.0004949747468305833,
        100000: 0.00014,
    },
    (0.002, 16000, 1e-7): {
        0: 1e-07,
        1: 2.2499375e-07,
        15999: 0.00199987500625,
        16000: 0.002,
        16001: 0.0019999375029295346,
        50000: 0.001131370849898476,
    },
}


@pytest.mark.parametrize(("constants", "rates"), FAIRSEQ.items())
def test_inverse_sqrt_equals_fairseq(constants: tuple[float, int, float], rates: dict[int, float]) -> None:
    peak, warmup, initial = constants
    schedule = InverseSqrtConfig(peak=peak, warmup=warmup, initial=initial).build(d_model=1, max_updates=None)
    for finished, rate in rates.items():
        assert schedule(finished + 1) == pytest.approx(rate, rel=1e-12)


def test_noam_is_the_formula_of_the_paper() -> None:
    schedule = NoamConfig(scale=2.0, warmup=4000).build(d_model=512, max_updates=None)
    for update in (1, 17, 3999, 4000, 4001, 100_000):
        expected = 2.0 * 512**-0.5 * min(update**-0.5, update * 4000**-1.5)
        assert schedule(update) == pytest.approx(expected, rel=1e-12)
    assert max(schedule(update) for update in range(1, 10_000)) == schedule(4000)


def test_cosine_begins_at_the_peak_and_ends_at_the_minimum() -> None:
    config = CosineConfig(peak=1.0, warmup=10, initial=0.1, minimum=0.2)
    schedule = config.build(d_model=1, max_updates=110)
    assert schedule(10) == 1.0
    assert schedule(5) == pytest.approx(0.55)
    assert schedule(60) == pytest.approx(0.6)
    assert schedule(110) == pytest.approx(0.2)
    assert schedule(500) == pytest.approx(0.2)


@pytest.mark.parametrize("kind", [CosineConfig, WarmupStableDecayConfig])
@pytest.mark.parametrize("length", [1, 2, 9, 10, 55, 299, 300, 374])
def test_a_run_too_short_for_its_warmup_warms_up_for_a_tenth(
    kind: type[CosineConfig | WarmupStableDecayConfig], length: int
) -> None:
    def rates(warmup: int) -> list[float]:
        rate = kind(warmup=warmup).build(d_model=1, max_updates=length)
        return [rate(update) for update in range(1, length + 1)]

    shortened = length <= 300 or kind is WarmupStableDecayConfig
    assert rates(300) == rates(length // 10 if shortened else 300)
    assert kind(warmup=300).warmup_in(375) == 300


@pytest.mark.parametrize(
    ("form", "half"), [("linear", 0.6), ("1-sqrt", 0.2 + 0.8 * (1 - 0.5**0.5)), ("cosine", 0.6)]
)
def test_wsd_is_stable_and_then_falls_to_the_minimum(form: str, half: float) -> None:
    config = WarmupStableDecayConfig.model_validate(
        {"peak": 1.0, "warmup": 10, "initial": 0.5, "minimum": 0.2, "decay": 0.2, "form": form}
    )
    schedule = config.build(d_model=1, max_updates=100)
    assert schedule(5) == pytest.approx(0.75)
    assert [schedule(update) for update in range(10, 81)] == [1.0] * 71
    assert schedule(81) < 1
    assert schedule(90) == pytest.approx(half)
    assert [schedule(update) for update in (100, 500)] == pytest.approx([0.2, 0.2])
    falling = [schedule(update) for update in range(80, 101)]
    assert falling == sorted(falling, reverse=True)


def test_wsd_has_the_same_rates_for_any_length_until_it_decays() -> None:
    config = WarmupStableDecayConfig(warmup=10, decay=0.25)
    short, long = (config.build(d_model=1, max_updates=count) for count in (40, 400))
    assert [short(update) for update in range(1, 31)] == [long(update) for update in range(1, 31)]


@pytest.mark.parametrize("config", [CosineConfig(warmup=10), WarmupStableDecayConfig(warmup=10)])
def test_a_schedule_with_a_length_of_its_own_does_not_follow_that_of_the_run(
    config: CosineConfig | WarmupStableDecayConfig,
) -> None:
    assert config.follows_length
    fixed = config.model_copy(update={"updates": 40})
    assert not fixed.follows_length
    short, long = (fixed.build(d_model=1, max_updates=count) for count in (40, 400))
    assert [short(update) for update in range(1, 60)] == [long(update) for update in range(1, 60)]


@pytest.mark.parametrize("kind", [CosineConfig, WarmupStableDecayConfig])
def test_no_run_goes_on_at_a_rate_of_nothing(kind: type[CosineConfig | WarmupStableDecayConfig]) -> None:
    for length in (30, 40, None):
        kind(warmup=10, updates=40).check(length)
    kind(warmup=10, updates=40, minimum=1e-5).check(41)
    with pytest.raises(ValueError, match=r"updates is 40, where the rate is 0, and max_updates is 41"):
        kind(warmup=10, updates=40).check(41)


def test_a_shorter_run_has_shorter_constants() -> None:
    assert CosineConfig(warmup=100, updates=1000).shortened(30, 400) == {"warmup": 8, "updates": 75}
    assert WarmupStableDecayConfig(warmup=100).shortened(1, 400) == {"warmup": 1}
    assert ConstantConfig(warmup=0).shortened(30, 400) == {}


@given(
    config=st.one_of(
        st.builds(InverseSqrtConfig, peak=st.floats(1e-5, 1), warmup=st.integers(0, 10**5)),
        st.builds(NoamConfig, scale=st.floats(0.1, 10), warmup=st.integers(1, 10**5)),
        st.builds(CosineConfig, peak=st.floats(1e-5, 1), warmup=st.integers(0, 9999)),
        st.builds(WarmupStableDecayConfig, peak=st.floats(1e-5, 1), warmup=st.integers(0, 7000)),
        st.builds(ConstantConfig, peak=st.floats(1e-5, 1), warmup=st.integers(0, 10**5)),
    ),
    update=st.integers(1, 10**7),
)
def test_every_rate_is_finite_and_not_negative(
    config: InverseSqrtConfig | NoamConfig | CosineConfig | WarmupStableDecayConfig | ConstantConfig,
    update: int,
) -> None:
    rate = config.build(d_model=256, max_updates=10_000)(update)
    assert math.isfinite(rate)
    assert 0 <= rate <= 10


@pytest.mark.parametrize(
    "settings",
    [
        "inverse_sqrt",
        {"type": "noam", "warmup": 7},
        {"type": "cosine", "warmup": 10},
        {"type": "cosine", "warmup": 10, "updates": 100, "minimum": 1e-5},
        {"type": "wsd", "warmup": 10},
        {"type": "wsd", "warmup": 10, "updates": 60, "minimum": 1e-5},
        {"type": "constant", "warmup": 3},
    ],
)
def test_ours_pass_the_checks_of_any(settings: str | dict[str, object]) -> None:
    check_schedule(settings)


class Strange(ConstantConfig):
    """Another function, in the place of a schedule."""

    type: Literal["strange"] = "strange"  # type: ignore[assignment]

    def build(self, *, d_model: int, max_updates: int | None) -> Schedule:
        assert max_updates is not None
        calls = count()
        rates: dict[float, Callable[[int], float]] = {
            1: lambda update: 1 - update / 50,
            2: lambda update: update / max_updates,
            3: lambda update: float(next(calls)),
            4: lambda update: 0.0,
            5: lambda update: math.inf if update == 7 else 1.0,
        }
        return rates[self.peak]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (1, "the rate of update 51 is -0.02"),
        (2, "a longer run has other rates, and follows_length does not say so"),
        (3, "depends on those that were asked for before it"),
        (4, "all rates are 0"),
        (5, "the rate of update 7 is inf"),
    ],
)
def test_the_checks_find_what_does_not_hold(number: int, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_schedule(Strange(peak=number))
