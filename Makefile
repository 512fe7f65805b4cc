# Everything a contributor types. Each target sets up what it needs; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PY := .venv/bin/python
PYTEST := $(PY) -m pytest
# Two workers, each with its own Spark session; the tests of a file stay together because they share tables.
WORKERS ?= 2
PARALLEL := -n $(WORKERS) --dist loadfile
BENCH_WORK ?= bench/out/work
BENCH_OPTIONS ?=

.PHONY: help setup demo serve test soak test-quick test-stack test-spark35 lint docs stack stack-down wheel bench clean

help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/' | column -t -s '|' 2>/dev/null || \
	grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST)

setup: ## Make .venv as uv.lock says (done by every other target)
	@scripts/setup

demo: setup ## Write bad tables into ./demo-warehouse, look at them, and compact some
	@.venv/bin/neve demo

serve: setup ## Serve a demo warehouse in ./neve-serve-demo whose writers make small files, and watch its tables become healthy
	@.venv/bin/neve serve --demo

test: setup ## Run the tests that need no server
	@$(PYTEST) $(PARALLEL) -m "not slow and not stack"

soak: setup ## Run the long tests: kills at every stage, stress, faults, every case on PySpark 3.5
	@$(PYTEST) -m slow
	@scripts/spark35.sh

test-quick: setup ## Run the tests that start neither Spark nor a server
	@$(PYTEST) $(PARALLEL) -m "not spark and not stack and not slow"

test-stack: setup ## Run the tests against real servers; those that cannot be had are skipped with the reason
	@$(PYTEST) -m "stack and not slow"

test-spark35: setup ## Run the first case of each Spark test on PySpark 3.5, in .venv35 (make soak runs all cases)
	@scripts/spark35.sh --first-cases

lint: setup ## Check style, types, import contracts and documentation
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(PY) scripts/docs.py check

docs: setup ## Write the generated reference pages anew
	@$(PY) scripts/docs.py generate

stack: setup ## Start the real servers that tests use, and leave them running
	@$(PY) -m stack up

stack-down: setup ## Stop them
	@$(PY) -m stack down

wheel: setup ## Build wheel and sdist, and run the demo from the wheel in a fresh environment
	@scripts/wheel

bench: setup ## Run the benchmarks on a quiet machine, an hour or two; results go to bench/out (BENCH_OPTIONS=--quick to try)
	@status=0; $(PY) bench/inspect.py || status=1; $(PY) -m bench.planning || status=1; \
	for name in start memory rewrite deletes oversized_deletes clustering sort_large maintenance orphan_index writers scale query simulate fleet fleet_rest serve; do \
	  $(PY) -m bench.$$name --work $(BENCH_WORK)/$$name $(BENCH_OPTIONS) || status=1; done; \
	$(PY) -m bench.chart_page; exit $$status

clean: ## Remove what was built, the environments included
	rm -rf .venv .venv35 dist build demo-warehouse bench/out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
