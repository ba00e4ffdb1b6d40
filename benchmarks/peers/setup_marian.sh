#!/usr/bin/env bash
# Make a virtual environment that holds transformers 5.23 (Marian) on torch 2.13 for the speed comparison.
#
#   benchmarks/peers/setup_marian.sh [FOLDER]        default folder: ~/.cache/deepwire-peers/marian
set -euo pipefail

folder="${1:-$HOME/.cache/deepwire-peers/marian}"
python="${PYTHON:-python3.11}"
torch="${TORCH:-torch==2.13.0}"   # TORCH="torch==2.13.0+cpu" where an index offers the CPU build

"$python" -m venv "$folder"
pip="$folder/bin/pip"
"$pip" install --quiet "$torch"
"$pip" freeze | grep '^torch==' > "$folder/constraints.txt"
"$pip" install --quiet --constraint "$folder/constraints.txt" "transformers==5.23.0" "accelerate" "sentencepiece"
"$folder/bin/python" -c "
import torch, transformers
from transformers import MarianMTModel
print('transformers', transformers.__version__, 'torch', torch.__version__)"
