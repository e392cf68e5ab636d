# Everything runs in .venv, which the first target that needs it creates. An install is
# repeated only when pyproject.toml changed, so a second run starts at once.

VENV    := .venv
PY      := $(VENV)/bin/python
PIP     := $(PY) -m pip --disable-pip-version-check
RUNTIME := $(VENV)/.installed-runtime
DEV     := $(VENV)/.installed-dev
DOCS    := $(VENV)/.installed-docs

# The interpreter to build .venv with; empty: the first of these that is new enough.
PYTHON     ?=
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11 python

# Test processes that run side by side.
WORKERS ?= 4
# More arguments for pytest, for example: make test ARGS="-x tests/contract -k claim"
ARGS    ?=

# Tests start hundreds of processes: compiled once, each starts in half the time.
unexport PYTHONDONTWRITEBYTECODE

TYPED := src bench examples proof tests conftest.py

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test test-all test-rest run-tests wheel-check store-example fuzz check format docs bench bench-compare chaos simulate simulate-mutants contract-mutants clean

help: ## Show this list
	@echo "Perdure: make <target>"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

install: $(DEV) ## Create .venv with everything that development needs

demo: $(RUNTIME) ## Watch a flow on three worker processes, one of which is killed
	@$(PY) -m perdure.demo

test: $(DEV) ## Run the tests, on memory, SQLite and a real PostgreSQL
	@$(MAKE) --no-print-directory run-tests STORES=one

test-all: $(DEV) ## Run every test on every store
	@$(MAKE) --no-print-directory run-tests STORES=all

test-rest: $(DEV) ## Run the cases of test-all that test leaves out
	@$(MAKE) --no-print-directory run-tests STORES=rest

run-tests:
	@echo "==> Looking for PostgreSQL"
	@$(PY) tests/postgres_server.py
	@echo "==> Running the tests in $(WORKERS) processes"
	@$(PY) -m pytest -n $(WORKERS) --stores=$(STORES) $(ARGS)

wheel-check: $(DEV) ## Build the wheel, and try it in an empty environment
	@$(PY) -m tests.wheel

store-example: $(PY) ## Install the example of an own store elsewhere, and run the contract tests
	@$(PY) -m venv build/store-example
	@build/store-example/bin/python -m pip --disable-pip-version-check install -qq \
	    . './examples/own_store[test]' pytest-xdist
	@build/store-example/bin/python -m pytest -q -n $(WORKERS) examples/own_store

fuzz: $(DEV) ## Try bad input of every kind for 10 minutes (ARGS="--seconds 60")
	@$(PY) -m proof.fuzz $(ARGS)

check: $(DEV) ## Lint, formatting, types and import direction
	@echo "==> ruff check"
	@$(PY) -m ruff check .
	@echo "==> ruff format --check"
	@$(PY) -m ruff format --check .
	@echo "==> mypy --strict $(TYPED)"
	@$(PY) -m mypy $(TYPED)
	@echo "==> mypy and pyright on programs that use Perdure"
	@$(PY) -m pytest -q tests/typing/check.py
	@echo "==> Architecture tests"
	@$(PY) -m pytest -q tests/architecture

format: $(DEV) ## Format the code and apply safe lint fixes
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

docs: $(DOCS) ## Build the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "Open build/site/index.html; for the search: $(PY) -m http.server -d build/site"

bench: $(DEV) ## Measure speed as a ratio to the raw cost on the same database
	@$(PY) -m bench

# The revision to compare with.
BASE ?= HEAD

bench-compare: $(DEV) ## Compare speed with another revision in one run (BASE=main~5)
	@rm -rf build/base && git worktree prune && git worktree add -q --detach build/base $(BASE)
	@$(PY) -m bench.compare build/base $(ARGS); \
	    status=$$?; git worktree remove --force build/base; exit $$status

chaos: $(DEV) ## Kill, freeze, cut off and fill up under load, then check that nothing is lost
	@$(PY) -m proof.chaos $(ARGS)

# How many simulated histories, and the seed of the first one.
SEEDS ?= 2000
FIRST ?= 1

simulate: $(DEV) ## Simulate clients, workers and engine from SEEDS=2000 seeds, FIRST=1 on
	@$(PY) -m proof.simulate --seeds $(SEEDS) --first $(FIRST) $(ARGS)

simulate-mutants: $(DEV) ## Break the code in many small ways, and let the simulator find each out
	@$(PY) -m proof.simulate --mutants $(ARGS)

contract-mutants: $(DEV) ## Break SQL statements, and let the contract tests find each (ARGS="--only claim")
	@$(PY) -m proof.statements $(ARGS)

clean: ## Remove .venv, caches and builds
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src proof tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@set -e; \
	chosen=; \
	for candidate in $(or $(PYTHON),$(CANDIDATES)); do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	    then chosen="$$candidate"; break; fi; \
	done; \
	if [ -z "$$chosen" ]; then \
	    echo "Perdure needs Python 3.11 or newer; tried: $(or $(PYTHON),$(CANDIDATES))." >&2; \
	    echo "Install one, or name it: make PYTHON=/path/to/python3.11 <target>" >&2; \
	    exit 1; \
	fi; \
	echo "==> Creating $(VENV) with $$("$$chosen" --version)"; \
	"$$chosen" -m venv $(VENV) || { \
	    rm -rf $(VENV); \
	    echo "Could not create $(VENV). Debian and Ubuntu: apt install python3-venv" >&2; \
	    exit 1; \
	}

$(RUNTIME): pyproject.toml | $(PY)
	@echo "==> Installing Perdure into $(VENV)"
	@$(PIP) install -qq -e .
	@touch $@

# A superset of the runtime install, so it counts as both.
$(DEV): pyproject.toml | $(PY)
	@echo "==> Installing Perdure and its development tools into $(VENV)"
	@$(PIP) install -qq -e '.[dev]'
	@touch $(RUNTIME) $@

# Only for the site: the tests check pages, links and examples without it.
$(DOCS): pyproject.toml | $(PY)
	@echo "==> Installing Perdure and what builds its site into $(VENV)"
	@$(PIP) install -qq -e '.[docs]'
	@touch $(RUNTIME) $@
