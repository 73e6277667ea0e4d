# `make demo` and `make test` set everything up from a fresh clone; nothing else is needed but
# git, make and a Python of at least 3.12.

# the first of these that is new enough; .python-version steers pyenv and uv to 3.13
PYTHON ?= $(shell for p in python3.13 python3 python3.12 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
# uv installs the same packages as pip in a tenth of the time
INSTALL := VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --editable
# each stamp adds to the one before: the package, tools to test it, Spark and engines, tools for the pages
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
SPARK_READY := $(VENV)/.spark-ready
DOCS_READY := $(VENV)/.docs-ready
# kernels, which are compiled once for all test processes, and again where their sources changed
COMPILED := $(VENV)/.compiled
KERNELS := $(wildcard soc_pymc/families/*.py soc_pymc/data/*.py soc_pymc/_model/*.py soc_pymc/inference/*.py)
# the lowest allowed versions of all dependencies, on the lowest Python; where pyenv's shims hide
# it behind .python-version, PYENV_VERSION shows it
LOWEST := .venv-lowest
LOWEST_READY := $(LOWEST)/.ready
LOWEST_PYTHON ?= $(shell for p in python3.12 "env PYENV_VERSION=3.12 python3.12"; do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null && echo $$p && break; done)
# one file or folder for each library: engines, HDF5, PyMC with ArviZ, matplotlib, scikit-learn with
# the command line, SQL; what is left out is mathematics of our own, on numbers alone
LOWEST_TESTS := tests/data/test_engines.py tests/_lib/test_files.py \
	tests/quantities/test_quantities.py tests/plots/test_pictures.py tests/front \
	tests/posterior/test_sql.py tests/whole/test_public_names.py
# modules are compiled once, at set-up and at their first import, not in every process
export UV_COMPILE_BYTECODE := 1
unexport PYTHONDONTWRITEBYTECODE
# one thread for linear algebra and OpenMP: matrices are small, and two jobs share two cores
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-slow test-lowest lowest-python notebooks docs lint bench bench-scale clean

demo: $(INSTALLED)
	$(BIN)/soc-pymc demo --out demo

test: $(COMPILED)
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations 10 tests

test-slow: $(COMPILED) $(SPARK_READY) $(DOCS_READY)
	$(BIN)/python -m pytest -m slow -n 2 --dist worksteal --durations 20

test-lowest: $(LOWEST_READY)
	VIRTUAL_ENV=$(LOWEST) $(LOWEST)/bin/uv pip list
	$(LOWEST)/bin/python -m pytest -n 2 --dist loadfile --durations 10 $(LOWEST_TESTS)

# runs the notebooks, stores their outputs, and fails on errors or where one is large
notebooks: $(DOCS_READY)
	$(BIN)/python notebooks/execute.py

# the site; warnings are errors
docs: $(DOCS_READY)
	rm -rf docs/_build docs/reference/api
	$(BIN)/python -m sphinx -W --keep-going -j 2 -b html docs docs/_build/html

lint: $(READY)
	$(BIN)/ruff check soc_pymc tests
	$(BIN)/ruff format --check soc_pymc tests
	$(BIN)/mypy
	$(BIN)/lint-imports

# the cost of scoring; with AGAINST=commit, of whole tasks beside the code of that commit
bench: $(READY)
	$(BIN)/python -m tests.bench.$(if $(AGAINST),bench_paired $(AGAINST),bench_fit) $(BENCH)

bench-scale: $(READY)
	$(BIN)/python -m tests.bench.bench_scale $(BENCH)

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python >= 3.12 was found: set PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(INSTALL) .
	touch $@

$(READY): $(INSTALLED)
	$(INSTALL) ".[dev]"
	touch $@

$(SPARK_READY): $(READY)
	$(INSTALL) ".[spark,engines]"
	touch $@

$(DOCS_READY): $(READY)
	$(INSTALL) ".[docs]"
	touch $@

$(COMPILED): $(READY) $(KERNELS) tests/compiled.py
	$(BIN)/python -m tests.compiled
	touch $@

$(LOWEST_READY): pyproject.toml
	@test -n "$(LOWEST_PYTHON)" || { echo "no Python 3.12 was found: set LOWEST_PYTHON=/path/to/python3.12"; exit 1; }
	$(LOWEST_PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	VIRTUAL_ENV=$(LOWEST) $(LOWEST)/bin/uv pip install --quiet --resolution lowest-direct \
		--editable ".[polars,postgres,test]"
	touch $@

# empty where there is none
lowest-python:
	@echo "$(LOWEST_PYTHON)"

clean:
	rm -rf $(VENV) $(LOWEST) demo build dist docs/_build docs/jupyter_execute docs/notebooks docs/reference/api *.egg-info .pytest_cache .mypy_cache .ruff_cache
