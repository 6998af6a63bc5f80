# Every target sets up what it needs: on a fresh machine `make demo` is enough.
# A Python of 3.11 or newer; another one: make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
BIN := $(VENV)/bin
PIP_INSTALL := install --quiet --disable-pip-version-check --constraint constraints.txt

# Two test processes with one thread each: two cores, not oversubscribed.
WORKERS ?= 2
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: help demo test test-slow fuzz lint format bench bench-peers notebooks docs clean clean-venv
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# ------------------------------------------------------------------- environments

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip $(PIP_INSTALL) --editable '.[dev]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip $(PIP_INSTALL) --editable '.[docs]'
	@touch $@

# The peers' dependencies are many and their own; they never enter $(VENV). Only torch
# is pinned as in constraints.txt, so that both sides compute with the same one.
$(PEERS)/.installed: benchmarks/requirements-peers.txt pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check \
		"$$(grep '^torch==' constraints.txt)" \
		--editable . --requirement benchmarks/requirements-peers.txt
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps torchdyn==1.0.6
	@touch $@

# ------------------------------------------------------------------------ targets

demo: $(VENV)/.installed  ## two minutes: SNOpt against tuned rivals, a live table and a page
	$(BIN)/python examples/demo.py

test: $(VENV)/.installed  ## tests and doctests, without the slow ones
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS)

test-slow: $(VENV)/.installed  ## the slow tests alone
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m slow

fuzz: $(VENV)/.installed  ## new random problems for ten minutes; what fails goes to out/fuzz
	$(ONE_THREAD) $(BIN)/python -m tests.fuzz --minutes 10 --workers $(WORKERS)

lint: $(VENV)/.installed  ## ruff (rules and layout) and strict mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed  ## lay the code out and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed  ## measure against torchdiffeq, write the tables
	$(BIN)/python -m benchmarks.engine measure
	$(BIN)/python -m benchmarks.engine memory
	$(BIN)/python -m benchmarks.peers page

bench-peers: $(PEERS)/.installed  ## measure against other libraries
	$(PEERS)/bin/python -m benchmarks.peers measure
	$(PEERS)/bin/python -m benchmarks.peers equal
	$(PEERS)/bin/python -m benchmarks.peers growth
	$(PEERS)/bin/python -m benchmarks.peers page

notebooks: $(VENV)/.installed  ## run docs/notebooks and store their outputs
	$(ONE_THREAD) $(BIN)/jupyter-execute --inplace docs/notebooks/*.ipynb

docs: $(VENV)/.installed-docs  ## build the site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:  ## remove caches and what the project wrote
	rm -rf out site build dist .pytest_cache .mypy_cache .ruff_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

clean-venv:  ## remove the environments too
	rm -rf $(VENV) $(PEERS)
