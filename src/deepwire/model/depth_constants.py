"""Constants that the papers on very deep Transformers derive from the number of layers of both stacks.

Everywhere N are the layers of the stack in question and M those of the other one; M is 0 for a stack alone,
as in a language model. Encoder-decoder models have other constants than a stack alone.
"""

from __future__ import annotations

from math import log, sqrt

from deepwire.model.stack_spec import Side


def deepnorm_residual_scale(side: Side, layers: int, other_layers: int) -> float:
    """alpha of DeepNorm (Wang et al. 2022, DeepNet).

    0.81 (N^4 M)^(1/16) in an encoder with N layers before a decoder with M; (3 N)^(1/4) in a decoder with N;
    (2 N)^(1/4) in a stack alone.
    """
    if not other_layers:
        return float((2 * layers) ** 0.25)
    if side == "decoder":
        return float((3 * layers) ** 0.25)
    return float(0.81 * (layers**4 * other_layers) ** 0.0625)


def deepnorm_gain(side: Side, layers: int, other_layers: int) -> float:
    """beta of DeepNorm, the gain of initial matrices (same source).

    0.87 (N^4 M)^(-1/16), (12 N)^(-1/4) and (8 N)^(-1/4), in the order of `deepnorm_residual_scale`.
    """
    if not other_layers:
        return float((8 * layers) ** -0.25)
    if side == "decoder":
        return float((12 * layers) ** -0.25)
    return float(0.87 * (layers**4 * other_layers) ** -0.0625)


def sub_ln_gain(side: Side, layers: int, other_layers: int) -> float:
    """gamma of Sub-LN, the gain of initial matrices (Wang et al. 2022, Magneto).

    sqrt(ln(3 M) ln(2 N) / 3) in an encoder with N layers before a decoder with M; sqrt(ln(3 N)) in a decoder
    with N; sqrt(ln(2 N)) in a stack alone.
    """
    if not other_layers:
        return sqrt(log(2 * layers))
    if side == "decoder":
        return sqrt(log(3 * layers))
    return sqrt(log(3 * other_layers) * log(2 * layers) / 3)
