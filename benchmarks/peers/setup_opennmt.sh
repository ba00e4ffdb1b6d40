#!/usr/bin/env bash
# Make a virtual environment that holds OpenNMT-py 3.5.1 on torch 2.13 for the speed comparison.
#
#   benchmarks/peers/setup_opennmt.sh [FOLDER]        default folder: ~/.cache/deepwire-peers/opennmt
#
# OpenNMT-py declares torch<2.3; both sides of a comparison must run on the same torch, so it is installed
# without its declared dependencies, and what its modules import is installed by hand.
set -euo pipefail

source "$(dirname "$0")/environment.sh" opennmt "$@"
"$pip" install --quiet "numpy<2" "setuptools<81" configargparse tensorboard pyyaml sacrebleu six \
    "ctranslate2>=4,<5" "pyonmttok>=1.37,<2" rapidfuzz pyahocorasick fasttext-wheel spacy flask waitress
"$pip" install --quiet --no-deps "OpenNMT-py==3.5.1"
"$folder/bin/python" -c "
import torch, onmt, onmt.bin.train
print('OpenNMT-py', onmt.__version__, 'torch', torch.__version__)"
