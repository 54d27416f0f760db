# `make` prints the targets.
PYTHON ?= python3
ARGS ?=
PORT ?= 8000
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
.PHONY: help venv lint format test test-unit test-notebooks test-site \
  book serve lab notebooks demo clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12    the Python that .venv is made with (3.11 or newer)"
	@echo "  TORCH_INDEX=URL      take torch from there, see README.md"
	@echo "  ARGS='-k attention'  what to hand to pytest, demo.py or the notebook tool"
	@echo "  PORT=8000            where \`make serve\` serves"

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

test: lint test-unit test-notebooks test-site ## lint and all tests

test-unit: $(READY) ## the code's tests, on two processes
	$(QUIET_THREADS) $(BIN)/python -m pytest -n 2 \
	  --ignore=tests/notebooks --ignore=tests/site $(ARGS)

# Every notebook runs again, and its outputs must be the committed ones.
test-notebooks: $(READY) ## the notebooks: form, then strict nbval
	$(QUIET_THREADS) $(BIN)/python -m pytest -n 2 tests/notebooks
	@if ls notebooks/*.ipynb >/dev/null 2>&1; then \
	  echo "$(BIN)/python -m pytest --nbval -n 2 --dist loadfile notebooks"; \
	  $(QUIET_THREADS) $(BIN)/python -m pytest --nbval -n 2 --dist loadfile notebooks; \
	else echo "no notebooks yet"; fi

test-site: $(READY) ## the site in headless Chromium
	$(QUIET_THREADS) $(BIN)/python -m pytest tests/site

book: $(READY) ## the site into _build/html, from the committed outputs
	rm -rf _build/html
	$(QUIET_THREADS) $(BIN)/jupyter-book build . --all -W -n --keep-going --quiet
	@echo "The site is built. Open _build/html/index.html, or run \`make serve\`."

serve: book ## build the site and serve it on this machine
	@echo "http://127.0.0.1:$(PORT)/    (stop with Ctrl+C)"
	$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

lab: $(READY) ## the notebooks in JupyterLab
	$(BIN)/jupyter lab --notebook-dir=notebooks $(ARGS)

notebooks: $(READY) ## run the notebooks and save all outputs
	$(BIN)/python -m bookkit.notebooks refresh $(ARGS)

demo: $(READY) ## train on the copy task and check the result
	$(BIN)/python demo.py --steps 500 $(ARGS)

clean: ## remove .venv, builds and caches
	rm -rf $(VENV) build dist _build src/*.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
