#!/usr/bin/env bash
# Make a virtual environment that holds CTranslate2 4.8.5, for the comparison of decoding speed.
#
#   benchmarks/peers/setup_ctranslate2.sh [FOLDER]        default folder: ~/.cache/deepwire-peers/ctranslate2
#
# It computes with its own C++ and oneDNN or MKL, so torch is not needed.
set -euo pipefail

folder="${1:-$HOME/.cache/deepwire-peers/ctranslate2}"
python="${PYTHON:-python3.11}"

"$python" -m venv "$folder"
pip="$folder/bin/pip"
"$pip" install --quiet "ctranslate2==4.8.5" "numpy>=2,<3" "safetensors" "setuptools<81"
"$folder/bin/python" -c "
import ctranslate2
print('CTranslate2', ctranslate2.__version__, ctranslate2.get_supported_compute_types('cpu'))"
