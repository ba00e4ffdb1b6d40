"""Comparisons end early."""

import torch
from untrained_models import short_comparisons  # noqa: F401 - a fixture of all tests here

torch.set_num_threads(1)
