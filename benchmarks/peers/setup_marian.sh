#!/usr/bin/env bash
# Make a virtual environment that holds transformers 5.23 (Marian) on torch 2.13 for the speed comparison.
#
#   benchmarks/peers/setup_marian.sh [FOLDER]        default folder: ~/.cache/deepwire-peers/marian
set -euo pipefail

source "$(dirname "$0")/environment.sh" marian "$@"
"$pip" freeze | grep '^torch==' > "$folder/constraints.txt"
"$pip" install --quiet --constraint "$folder/constraints.txt" "transformers==5.23.0" "accelerate" "sentencepiece"
"$folder/bin/python" -c "
import torch, transformers
from transformers import MarianMTModel
print('transformers', transformers.__version__, 'torch', torch.__version__)"
