#!/usr/bin/env bash
# Make a virtual environment that holds fairseq 0.12.2 on torch 2.13 for the speed comparison.
#
#   benchmarks/peers/setup_fairseq.sh [FOLDER]        default folder: ~/.cache/deepwire-peers/fairseq
#
# Needs a C++ compiler. Installed without its declared dependencies (torchaudio): only what training imports,
# with the last versions that it works with. It imports on Python 3.11 through inside/fairseq_launcher.py.
set -euo pipefail

source "$(dirname "$0")/environment.sh" fairseq "$@"
"$pip" install --quiet "pip<24.1"   # later ones refuse the metadata of omegaconf 2.0
"$pip" install --quiet "numpy<1.24" "setuptools<81" "omegaconf==2.0.6" "hydra-core==1.0.7" "sacrebleu<2.5" \
    cffi regex tqdm bitarray
"$pip" install --quiet --no-deps "fairseq==0.12.2"
"$folder/bin/python" -c "
import importlib.metadata, torch
print('fairseq', importlib.metadata.version('fairseq'), 'torch', torch.__version__)"
