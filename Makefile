# `make` prints the targets.
PYTHON ?= python3
ARGS ?=
# Where to take torch from, e.g. https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PINNED := $(VENV)/.pinned
READY := $(VENV)/.ready

# Two spinning threads on a busy machine are 6 to 10 times slower than one.
QUIET_THREADS := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE

.DEFAULT_GOAL := help
.PHONY: help venv lint format test demo clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12    the Python that .venv is made with (3.11 or newer)"
	@echo "  TORCH_INDEX=URL      take torch from there, see README.md"
	@echo "  ARGS='-k attention'  what to hand to pytest or demo.py"

venv: $(READY) ## .venv with the pinned requirements and this project, editable

# Made afresh when a pin changes.
$(PINNED): requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: PYTHON=$(PYTHON) is not there, or is older than 3.11." >&2; \
	  echo "Name a newer one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
	  exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(if $(TORCH_INDEX),$(PIP) install --quiet --index-url $(TORCH_INDEX) $$(grep '^torch==' requirements.txt))
	$(PIP) install --quiet -r requirements.txt
	@touch $@

# `pip check` finds a dependency in pyproject.toml that has no pin.
$(READY): $(PINNED) pyproject.toml
	$(PIP) install --quiet --no-deps --editable .
	$(PIP) check
	@touch $@

lint: $(READY) ## ruff: rules and format, code and notebooks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint ## .venv, lint, then pytest on two processes
	$(QUIET_THREADS) $(BIN)/python -m pytest -n 2 $(ARGS)

demo: $(READY) ## train on the copy task and check the result
	$(BIN)/python demo.py --steps 500 $(ARGS)

clean: ## remove .venv, builds and caches
	rm -rf $(VENV) build dist _build src/*.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
