#!/usr/bin/env bash
# Make a virtual environment that holds JoeyNMT 2.3.0 on torch 2.13 for the speed comparison.
#
#   benchmarks/peers/setup_joeynmt.sh [FOLDER]        default folder: ~/.cache/deepwire-peers/joeynmt
#
# Installed without its declared dependencies (protobuf<3.21, linters, notebooks): only what training imports.
set -euo pipefail

source "$(dirname "$0")/environment.sh" joeynmt "$@"
"$pip" install --quiet "numpy<2" "setuptools<81" tensorboard pyyaml sacrebleu sacremoses sentencepiece \
    subword-nmt matplotlib packaging pandas importlib_metadata
"$pip" install --quiet --no-deps "joeynmt==2.3.0"
"$folder/bin/python" -c "
import importlib.metadata, torch, joeynmt.training
print('JoeyNMT', importlib.metadata.version('joeynmt'), 'torch', torch.__version__)"
