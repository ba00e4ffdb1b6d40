"""Makes `onnx_check`, and `choices` of the model's tests, importable."""

import sys
from pathlib import Path

import torch

here = Path(__file__).parent
sys.path[:0] = [str(here), str(here.parent / "model")]
torch.set_num_threads(1)
