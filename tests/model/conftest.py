"""Small models run faster on one thread than on several that wait."""

import torch

torch.set_num_threads(1)
