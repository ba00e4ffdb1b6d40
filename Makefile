# make demo and make test need nothing but Python 3.11 or newer: the environment .venv is made first, once,
# and again when pyproject.toml changes. Nothing is installed outside the repository.
#
#   PYTHON=python3.12              the interpreter that makes .venv
#   TORCH=torch==2.13.0            what pip installs first; on Linux without a GPU the CPU build is much smaller:
#                                  TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
#   WORKERS=2                      processes of make test
#   ENGINE=docker                  builds the images of make release: docker or podman; empty: no images
#   PEERS=FOLDER ROUNDS=3          of make bench: environments made by benchmarks/peers/setup_*.sh, rounds

PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,\
	$(if $(shell $(name) -c 'import sys; print(sys.version_info >= (3, 11) or "")' 2>/dev/null),$(name))))
TORCH ?= torch==2.13.0
WORKERS ?= 2
ENGINE ?= docker
PEERS ?= $(HOME)/.cache/deepwire-peers
ROUNDS ?= 3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.ready-docs

# Compiling all modules takes pip most of the time; each is compiled when it is first imported, and kept.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-compile
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test check docs release format bench clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup: $(READY) ## make .venv with everything the other targets need

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; name one with PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) $(TORCH)
	$(PIP) --editable '.[dev]'
	@touch $@

demo: $(READY) ## train a small model on examples/multi30k, translate, score (about ten minutes on two cores)
	PATH="$(abspath $(BIN)):$$PATH" bash examples/demo.sh

# Files come in the order of tests/conftest.py: xdist would begin with those that have most tests.
test: $(READY) ## all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

check: $(READY) ## style, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/lint-imports

$(DOCS_READY): $(READY)
	$(PIP) --editable '.[docs]'
	@touch $@

docs: $(DOCS_READY) ## the documentation site, into build/site; a broken link is an error
	$(BIN)/python docs/_site/stage.py
	PYTHONUTF8=1 $(BIN)/zensical build --strict --config-file build/mkdocs.yml

release: docs ## wheel, sdist and site, into dist, and the images (docs/understand/publishing.md)
	@test -z "$$(git status --porcelain)" || { echo "error: there are changes that are not committed: git status" >&2; exit 2; }
	@test -z "$(ENGINE)" || $(ENGINE) info > /dev/null 2>&1 || \
		{ echo "error: no container engine answers to '$(ENGINE) info'; without images: make release ENGINE=" >&2; exit 2; }
	rm -rf dist
	$(PIP) build twine
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	version=$$($(BIN)/python -c 'import deepwire; print(deepwire.__version__)') && \
	tar --create --gzip --file "dist/deepwire-$$version-site.tgz" --directory build site && \
	for kind in $(if $(ENGINE),cpu cuda); do \
		$(ENGINE) build --file containers/$$kind.Dockerfile --tag "deepwire:$$version-$$kind" . || exit 1; \
	done
	@ls -l dist

format: $(READY) ## rewrite the code in the one style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## speed against every toolkit set up under PEERS, into benchmarks/results
	$(BIN)/python benchmarks/training_speed.py --peers "$(PEERS)" --task small --rounds $(ROUNDS)
	$(BIN)/python benchmarks/training_speed.py --peers "$(PEERS)" --task base --rounds $(ROUNDS)
	$(BIN)/python benchmarks/training_speed.py --peers "$(PEERS)" --task base-32k --rounds $(ROUNDS)
	$(BIN)/python benchmarks/training_speed.py --peers "$(PEERS)" --task deep --rounds $(ROUNDS)
	$(BIN)/python benchmarks/decoding_speed.py --peers "$(PEERS)" --rounds $(ROUNDS)
	$(BIN)/python benchmarks/export_speed.py --rounds $(ROUNDS)
	$(BIN)/python benchmarks/decoding_toolkits.py --peers "$(PEERS)" --rounds $(ROUNDS)

clean: ## remove the environment, caches and demo runs
	rm -rf $(VENV) runs/demo prepared .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
