#!/usr/bin/env bash
# Make a virtual environment that holds eole 0.6.4 on torch 2.13 for the speed comparison.
#
#   benchmarks/peers/setup_eole.sh [FOLDER]        default folder: ~/.cache/deepwire-peers/eole
#
# With its declared dependencies, except that torch stays the one that both sides are measured on.
set -euo pipefail

source "$(dirname "$0")/environment.sh" eole "$@"
"$pip" freeze | grep '^torch==' > "$folder/constraints.txt"
"$pip" install --quiet --constraint "$folder/constraints.txt" "eole==0.6.4" "setuptools<81" \
    aiohttp   # not declared, and imported by its command
"$folder/bin/python" -c "
import importlib.metadata, torch, eole.bin.run.train
print('eole', importlib.metadata.version('eole'), 'torch', torch.__version__)"
