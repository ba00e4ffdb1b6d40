"""The property tests of deepwire, run on the choices of this package."""

from __future__ import annotations

import pytest
import torch
from deepwire_example.causal_convolution import CausalConvolution, CausalConvolutionConfig
from deepwire_example.highway import HighwayConfig
from deepwire_example.lion import LionConfig
from deepwire_example.polynomial import PolynomialConfig

from deepwire.model.context import Context
from deepwire.testing import check_connection, check_mixer
from deepwire.training.testing import check_optimizer, check_schedule


@pytest.mark.parametrize("bias", [-1.0, 0.0])
def test_highway(bias: float) -> None:
    """In encoder and decoder, beside an ordinary mixer and that of this package."""
    check_connection(HighwayConfig(bias=bias))
    check_connection(HighwayConfig(bias=bias), {"decoder": {"mixer": CausalConvolutionConfig()}})


@pytest.mark.parametrize("width", [1, 3])
def test_causal_convolution(width: int) -> None:
    """In the decoder, beside an ordinary connection."""
    check_mixer(CausalConvolutionConfig(width=width))


def test_lion() -> None:
    """It learns, leaves out steps that are not finite, and goes on from a checkpoint exactly."""
    check_optimizer(LionConfig(weight_decay=0.01))


def test_polynomial() -> None:
    """Rates of a run, of one twice as long and of one half as long."""
    check_schedule(PolynomialConfig(warmup=10, power=2))


def test_the_formula_of_the_convolution() -> None:
    """Written out for three positions."""
    torch.manual_seed(0)
    mixer = CausalConvolution(2, 2)
    with torch.no_grad():
        mixer.kernel.normal_()
        x = torch.randn(1, 3, 2)
        before = torch.cat((torch.zeros(1, 1, 2), x[:, :2]), 1)
        expected = mixer.output(mixer.kernel[0] * before + mixer.kernel[1] * x)
        assert torch.allclose(mixer(x, Context()), expected, atol=1e-6)
