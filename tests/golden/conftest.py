"""Makes `golden_names` importable from the tests of this folder."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
# Models this small only wait for each other on several threads.
torch.set_num_threads(1)
