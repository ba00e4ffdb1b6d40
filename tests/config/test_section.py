from __future__ import annotations

from deepwire.config.counts import Probability
from deepwire.config.section import NumberSection
from deepwire.model.stack_spec import DropoutConfig


class Rates(NumberSection):
    written_as = (Probability,)
    plain_sets = ("first", "second")
    no_number = "a number is both rates, not {}"

    first: float = 0.1
    second: float = 0.2
    third: float = 0.3


def test_a_number_stands_for_the_settings_that_it_sets() -> None:
    for number in (0, 0.5):
        assert Rates.model_validate(number) == Rates(first=number, second=number)
    assert Rates.model_validate({"third": 1}) == Rates(third=1)
    rates = Rates(first=0)
    assert Rates.model_validate(rates) is rates
    assert set(DropoutConfig.plain_sets) == set(DropoutConfig.model_fields)
