# Two commands do everything: `make run` and `make test`. Both set up a project-local environment first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: run test test-long mutations realclients check format clean help bench-history

help:            ## what there is to make
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "sessiond needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

run: $(READY)    ## start the daemon here, over the agents found in your home
	@$(BIN)/sessiond run

test: check      ## everything a change must pass
	$(BIN)/python -m pytest -n auto --dist loadgroup -m 'not long'

test-long: $(READY)  ## the slow proofs: 1000 kills, five gigabytes of history
	$(BIN)/python -m pytest -m long -s

mutations: $(READY)  ## breaks the core rules one at a time and sees a test fail for each
	$(BIN)/python tests/faults/mutations.py $(ARGS)

realclients: $(READY)  ## the real agent clients against a mock on loopback (ARGS="--clients claude --keep")
	$(BIN)/python tests/realclients/run.py $(ARGS)

check: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:           ## forget the environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

bench-history: $(READY)  ## the first run over 5 GB of history (SIZE=1GB for less)
	$(BIN)/python benchmarks/history.py --size $(or $(SIZE),5GB)
