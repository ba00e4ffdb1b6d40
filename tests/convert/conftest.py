"""Makes `onnx_check`, and `choices` of the model's tests, importable; comparisons end early."""

import sys
from pathlib import Path

import torch

here = Path(__file__).parent
sys.path[:0] = [str(here), str(here.parent / "model")]
from untrained_models import short_comparisons  # noqa: E402, F401 - a fixture of all tests here

torch.set_num_threads(1)
