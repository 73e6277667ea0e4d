# `make demo` and `make test` set everything up from a fresh clone; nothing else is needed but
# git, make and a Python of at least 3.12.

# the first of these that is new enough; .python-version steers pyenv and uv to 3.13
PYTHON ?= $(shell for p in python3.13 python3 python3.12 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# one thread for linear algebra: the matrices are small, and two jobs share two cores
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test test-slow lint bench bench-scale clean

demo: $(READY)
	$(BIN)/soc-pymc demo --out demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations 10

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow -s

lint: $(READY)
	$(BIN)/ruff check soc_pymc tests
	$(BIN)/ruff format --check soc_pymc tests
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m tests.bench.bench_fit $(BENCH)

bench-scale: $(READY)
	$(BIN)/python -m tests.bench.bench_scale $(BENCH)

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python >= 3.12 was found: set PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
