"""How many processes train on the cores of one machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch

from deepwire.ops.precision import has_bfloat16_units
from deepwire.training.config import Precision, TrainingConfig
from deepwire.training.micro_batch import usual_micro_batch

# More were not measured.
_MOST = 4
# Tokens of a forward pass that keep a thread busy: with fewer, cores do more as processes of their own.
_A_THREAD = 512
# In bfloat16 threads share the products of larger models as well as processes do, within 2 %, and in much
# less memory; in float32 two processes are 17 % faster (docs/benchmarks.md).
_LARGE = 32_000_000
# Each process has a parameter, its gradient, twice, and two moments, in float32; what is not needed with one
# process may take this part of the memory of the machine.
_BYTES, _SHARE = 20, 4


def processes_wanted(config: TrainingConfig, width: int, parameters: Callable[[], int]) -> int:
    """How many processes are to train on the cores of this machine, where torchrun started none.

    Args:
        config: What the run file says.
        width: d of the model.
        parameters: Gives about how many the model has; asked for only where several processes may train.
    """
    if not sys.platform.startswith("linux") or config.sharding != "none" or config.compile:
        return 1
    if config.device != "cpu" and (config.device != "auto" or torch.cuda.is_available()):
        return 1
    if config.processes is not None:
        return config.processes
    cores = config.threads or torch.get_num_threads()
    products = _number_format(config)
    usual = usual_micro_batch("cpu", products, width)
    tokens = min(config.micro_batch_tokens or usual, config.batch_tokens)
    threads = max(1, tokens // _A_THREAD)
    count = max(1, min(cores // threads, _MOST, config.batch_tokens // tokens))
    if count == 1 or (products == "bf16" and parameters() > _LARGE):
        return 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(count, 1 + memory // _SHARE // (_BYTES * parameters()))


def _number_format(config: TrainingConfig) -> Precision:
    """Of the products, as far as it can be told without timing any: no thread may start before the fork."""
    if config.precision == "auto":
        return "bf16" if has_bfloat16_units() else "fp32"
    return config.precision
