# Sourced by the set-up scripts: makes a virtual environment with the torch that all sides are measured on.
#
#   source environment.sh NAME [FOLDER]     sets `folder` and `pip`; default: ~/.cache/deepwire-peers/NAME
folder="${2:-$HOME/.cache/deepwire-peers/$1}"
pip="$folder/bin/pip"

"${PYTHON:-python3.11}" -m venv "$folder"
"$pip" install --quiet "${TORCH:-torch==2.13.0}"   # TORCH="torch==2.13.0+cpu" where an index offers the CPU build
