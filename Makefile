# Every target sets up what it needs in .venv; a second run finds it there.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
DATA ?= ../shared/data
# Numba notices an edit only in the file of the outermost function: tests keep compiled code apart for each state of src.
STATE = $(shell find src -name '*.py' | LC_ALL=C sort | xargs cat | cksum | cut -d ' ' -f 1)
# Bytecode is kept, whatever the environment says: tests start many processes.
CACHE = PYTHONDONTWRITEBYTECODE= NUMBA_CACHE_DIR=$(abspath $(VENV))/compiled/$(STATE)

.PHONY: demo test test-cpus test-slow lint types bench bench-full docs figures format clean

demo: $(VENV)/.installed
	$(BIN)/python -m gigagp.demo

test: lint types
	@ls -d $(VENV)/compiled/* 2>/dev/null | grep -v "/$(STATE)$$" | xargs -r rm -rf
	$(CACHE) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"
	$(CACHE) $(BIN)/python tests/cpus.py avx2 --unless-native --quick

test-cpus: $(VENV)/.dev
	$(CACHE) $(BIN)/python tests/cpus.py all

# Also runs every hypothesis test again, with many more examples.
test-slow: $(VENV)/.dev
	@$(BIN)/python tests/install_needs.py
	$(CACHE) $(BIN)/python -m pytest -m "slow or hypothesis" --hypothesis-profile long

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench
	$(CACHE) $(BIN)/python benchmarks/run.py --data $(DATA)

bench-full: $(VENV)/.bench
	$(CACHE) $(BIN)/python benchmarks/run.py --full --data $(DATA)

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

figures: $(VENV)/.installed
	$(BIN)/python docs/figures/draw.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "GigaGP needs Python 3.11 or newer; give one with: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "installing gigagp into $(VENV) ..."
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing gigagp and its development tools into $(VENV) ..."
	$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.installed

$(VENV)/.bench: pyproject.toml | $(VENV)/bin/python
	@echo "installing gigagp and the benchmarks' needs into $(VENV) ..."
	$(PIP) -e ".[bench]"
	@touch $@ $(VENV)/.installed

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	@echo "installing gigagp and what its pages need into $(VENV) ..."
	$(PIP) -e ".[docs]"
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
