# Everything runs in a virtual environment that these targets make by themselves.
#   make demo    the main job: train a translator, score it, look inside it (about two minutes after the install)
#   make test    the tests
#   make check   what CI runs: format, lint, types, import contract, tests
#   make slow    the tests that take long, which the others leave out
#   make fuzz    a thousand made-up requests for every route of the server
#   make examples  the example page and the pictures in docs/, from models you trained
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.dev-ready
# More packages to test with, and those whose files are wanted without their dependencies.
MORE ?=
ALONE ?=
MORE_READY := $(VENV)/.more-ready
# More than there are cores: many tests wait for commands that they have started.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# All tests of a file in one worker, in the order of tests/conftest.py: the long files first.
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo test check compiled slow fuzz format lint types contract examples clean

demo: $(READY)
	$(BIN)/clearhead demo --out demo

test: $(DEV_READY) $(MORE_READY)
	$(PYTEST)

check: $(DEV_READY)
	$(MAKE) --no-print-directory --jobs 3 $(MORE_READY) types lint contract compiled
	$(MAKE) --no-print-directory test

# What the tests import is compiled once, and not by all workers at the same time; what is wrong there they will say.
compiled: $(DEV_READY)
	-@$(BIN)/pytest --collect-only -q > /dev/null

lint: $(DEV_READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(DEV_READY)
	$(BIN)/mypy

contract: $(DEV_READY)
	$(BIN)/lint-imports --no-cache

format: $(DEV_READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

slow: $(DEV_READY)
	CLEARHEAD_TEST_SLOW=1 $(PYTEST) -m slow
	CLEARHEAD_TEST_KILLS=10 $(BIN)/pytest tests/journeys/test_many_ranks.py -k killed

fuzz: $(DEV_READY)
	CLEARHEAD_EXAMPLES=1000 $(BIN)/pytest -n $(WORKERS) tests/serve/test_schema.py tests/serve/test_rubbish.py

examples: $(DEV_READY)
	$(BIN)/python benchmarks/examples.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Modules are compiled when they are first imported, and kept so whatever the environment says: compiling all that is
# installed would take a minute, and compiling what is needed at every start of every command many.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what clearhead needs: a minute or two, the first time"
	$(PIP) --editable .
	touch $@

$(DEV_READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what clearhead and its tests need: a few minutes, the first time"
	$(PIP) --editable '.[dev]'
	touch $(READY) $@

# Made beside the checks: installing is mostly waiting.
$(MORE_READY): $(DEV_READY)
	$(if $(MORE),$(PIP) $(MORE))
	$(if $(ALONE),$(PIP) --no-deps $(ALONE))
	$(if $(MORE)$(ALONE),touch $@)

clean:
	rm -rf $(VENV) build dist demo .mypy_cache .ruff_cache .hypothesis
