# `make demo` and `make test` set everything up from a fresh clone; nothing else is needed but
# git, make and a Python of at least 3.12.

# the first of these that is new enough; .python-version steers pyenv and uv to 3.13
PYTHON ?= $(shell for p in python3.13 python3 python3.12 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# the lowest allowed versions of all dependencies, on the lowest Python; where pyenv's shims hide
# it behind .python-version, PYENV_VERSION shows it
LOWEST := .venv-lowest
LOWEST_READY := $(LOWEST)/.ready
LOWEST_PYTHON ?= $(shell for p in python3.12 "env PYENV_VERSION=3.12 python3.12"; do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null && echo $$p && break; done)
DOCS_READY := $(VENV)/.docs-ready
# kernels, which are compiled once for all test processes, and again where their sources changed
COMPILED := $(VENV)/.compiled
KERNELS := $(wildcard soc_pymc/families/*.py soc_pymc/data/*.py soc_pymc/model/likelihood.py)
# one thread for linear algebra: the matrices are small, and two jobs share two cores
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test test-slow test-lowest lowest-python docs docs-test lint bench bench-scale clean

demo: $(READY)
	$(BIN)/soc-pymc demo --out demo

test: $(COMPILED)
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations 10

test-slow: $(COMPILED)
	$(BIN)/python -m pytest -m slow -n 2 --dist worksteal --durations 20

# the files that tests/lowest.py names; Spark, of 430 MB, is left to the newest versions
test-lowest: $(LOWEST_READY)
	$(LOWEST)/bin/python -m pip list
	$(LOWEST)/bin/python -m pytest -n 2 --dist loadfile --durations 10 $$($(LOWEST)/bin/python -m tests.lowest files)

# the site with its notebooks; warnings and notebooks that fail are errors
docs: $(DOCS_READY)
	rm -rf docs/_build docs/reference/api
	$(BIN)/python -m sphinx -W --keep-going -j 2 -b html docs docs/_build/html

# every example, command and link of the pages, those for developers too
docs-test: $(DOCS_READY)
	$(BIN)/python -m pytest -n 2 -m 'slow or not slow' tests/whole/test_docs.py tests/whole/test_notebooks.py tests/whole/test_front_door.py tests/whole/test_house.py

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

$(COMPILED): $(READY) $(KERNELS) tests/compiled.py
	$(BIN)/python -m tests.compiled
	touch $(COMPILED)

$(LOWEST_READY): pyproject.toml tests/lowest.py
	@test -n "$(LOWEST_PYTHON)" || { echo "no Python 3.12 was found: set LOWEST_PYTHON=/path/to/python3.12"; exit 1; }
	$(LOWEST_PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --upgrade pip
	$(LOWEST)/bin/python -m tests.lowest >$(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --editable ".[polars,postgres,test]" --constraint $(LOWEST)/constraints.txt
	touch $(LOWEST_READY)

# empty where there is none
lowest-python:
	@echo "$(LOWEST_PYTHON)"

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --editable ".[dev,docs]"
	touch $(DOCS_READY)

clean:
	rm -rf $(VENV) $(LOWEST) demo build dist docs/_build docs/notebooks docs/reference/api *.egg-info .pytest_cache .mypy_cache .ruff_cache

# branch coverage of the default tests, then with the slow ones. Tests that limit the size of files
# fail here, since coverage's own files are cut too
.PHONY: coverage
coverage: $(READY)
	$(BIN)/python -m coverage erase
	-$(BIN)/python -m coverage run -m pytest -n 2 --dist loadfile
	-$(BIN)/python -m coverage combine
	$(BIN)/python -m coverage report --skip-covered | tail -n 1
	-$(BIN)/python -m coverage run -m pytest -n 2 --dist load -m slow
	-$(BIN)/python -m coverage combine --append
	$(BIN)/python -m coverage report
