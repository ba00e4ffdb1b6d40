from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest

from deepwire.data.batches.token_store import TokenStore
from deepwire.data.languages import Direction, Languages
from deepwire.model.translation_model import TranslationModel
from deepwire.training.device import PrecisionPolicy
from deepwire.training.validation import (
    DirectionsValidator,
    Validation,
    Validator,
    average,
    directions_in,
)

NOTHING = cast("TranslationModel", None), cast("PrecisionPolicy", None)


@dataclass
class Fake:
    """Stands for the validator of one direction."""

    nll: float
    interrupted: bool = False
    asked: list[int] = field(default_factory=list)
    last: bool | None = None

    def run(
        self, _: object, __: object, update: int, ___: Callable[[], bool], *, last: bool
    ) -> Validation | None:
        self.asked.append(update)
        self.last = last
        scores = {
            "loss": self.nll + 1,
            "nll": self.nll,
            "perplexity": math.exp(self.nll),
            "bleu": 10 * self.nll,
        }
        return None if self.interrupted else Validation(scores, [f"text {self.nll}"])


def of(**fakes: Fake) -> DirectionsValidator:
    return DirectionsValidator(cast("dict[str, Validator]", fakes))


def test_every_direction_counts_the_same() -> None:
    one, other = Fake(1.0), Fake(3.0)
    found = of(one=one, other=other).run(*NOTHING, 10, lambda: False, last=True)
    assert found is not None
    assert one.last is other.last is True
    assert found.scores == {"loss": 3.0, "nll": 2.0, "perplexity": pytest.approx(math.exp(2)), "bleu": 20.0}
    assert {name: one.scores["nll"] for name, one in found.directions.items()} == {"one": 1.0, "other": 3.0}
    assert found.directions["one"].translations == ["text 1.0"]
    assert found.translations == []


def test_an_interruption_leaves_the_whole_validation_undone() -> None:
    last = Fake(2.0)
    assert (
        of(one=Fake(1.0), other=Fake(1.0, interrupted=True), last=last).run(*NOTHING, 10, lambda: True)
        is None
    )
    assert last.asked == []


def test_the_perplexity_of_the_average_is_no_average_of_perplexities() -> None:
    assert average([{"nll": 0.0, "perplexity": 1.0}, {"nll": 2.0, "perplexity": math.exp(2)}]) == {
        "nll": 1.0,
        "perplexity": pytest.approx(math.e),
    }


def test_directions_without_text_are_left_out() -> None:
    languages = Languages(tuple(map(Direction.parse, ["en-de", "de-en", "en-fr"])))

    @dataclass
    class Store:
        directions: np.ndarray

        def __len__(self) -> int:
            return len(self.directions)

    found = directions_in(cast("TokenStore", Store(np.array([2, 0, 2], np.uint16))), languages)
    assert {name: part.lines.tolist() for name, part in found.items()} == {"en-de": [1], "en-fr": [0, 2]}
    assert found["en-fr"].direction == Direction("en", "fr")
