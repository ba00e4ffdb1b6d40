from __future__ import annotations

import pytest
from pydantic import ValidationError

from deepwire.decoding.decoding_config import DecodingConfig, all_of_sampling, with_settings
from deepwire.errors import UsageError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 0}, "greater than or equal to 1"),
        ({"beam": 4, "n_best": 5}, r"n_best must be at most beam \(4\), but is 5"),
        ({"max_length_ratio": 0, "max_length_extra": 0}, "no output would be allowed"),
        ({"sampling": {"temperature": 0}}, "greater than 0"),
        ({"sampling": {"top_p": 1.5}}, "less than or equal to 1"),
        ({"length_penalty": float("nan")}, "finite"),
        ({"length_penalty_form": "wu"}, "'gnmt' or 'average'"),
        ({"bean": 4}, "Extra inputs"),
        ({"batch_tokens": 0}, "greater than or equal to 1"),
    ],
)
def test_impossible_values(settings, message):
    with pytest.raises(ValidationError, match=message):
        DecodingConfig.model_validate(settings)


def test_one_setting_of_sampling_leaves_the_others_as_they_are():
    stored = DecodingConfig.model_validate({"sampling": {"temperature": 0.3, "seed": 7}})
    for named, expected in (
        ({"seed": 9}, (0.3, 0, 9)),
        ({"top_k": 5}, (0.3, 5, 7)),
        ({}, (0.3, 0, 7)),
        (all_of_sampling({"top_k": 5}), (1.0, 5, 1)),
    ):
        sampling = with_settings(stored, {"sampling": named}).sampling
        assert sampling is not None
        assert (sampling.temperature, sampling.top_k, sampling.seed) == expected
    assert with_settings(stored, {"sampling": None}).sampling is None
    assert with_settings(DecodingConfig(), {"sampling": {"seed": 9}}).sampling is not None
    with pytest.raises(UsageError, match="sampling: must be a section"):
        with_settings(stored, {"sampling": all_of_sampling(3)})


def test_length_penalties():
    def divisor(exponent, form, length):
        config = DecodingConfig(length_penalty=exponent, length_penalty_form=form)
        return config.length_divisor(length)

    assert divisor(0.6, "gnmt", 7) == pytest.approx(2**0.6)
    assert divisor(1.0, "average", 7) == pytest.approx(7)
    assert divisor(0.0, "gnmt", 100) == divisor(0.0, "average", 100) == 1
