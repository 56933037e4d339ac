# Targets for people and for CI. `make` alone lists them.
PYTHON ?= python3
VENV ?= .venv
PYTHONS ?= 3.11 3.12 3.13
BIN := $(VENV)/bin
WORKERS ?= 3

# How much `make fuzz` tries: examples of each property, then minutes of tests.fuzz and its kinds at the same time.
FUZZ_EXAMPLES ?= 1000
FUZZ_MINUTES ?= 60
FUZZ_JOBS ?= 2

# How much `make report` measures: small sizes and a few triples and queries show that it works.
REPORT ?= bench-report
TAXI ?= paper
SIZE ?= medium
TRIPLES ?= 10000000
QUERIES ?= 1024
BASELINE ?= 5

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint unit docs fuzz cluster kafka chaos bench report rewrite figures graph clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/.ready: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(BIN)/.ready  ## make a virtual environment with everything in it

demo: $(BIN)/.runs  ## an evening of a city's taxis on Spark, live in the terminal (a minute)
	$(BIN)/cqels demo

$(BIN)/.runs: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -e $(BIN)/.ready || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[spark]'
	@touch $@

test: lint unit  ## everything CI checks: style, types, layering, tests

test-all:  ## the same on each Python of PYTHONS that is installed, in environments of their own
	@for version in $(PYTHONS); do \
	  if command -v python$$version > /dev/null; \
	  then $(MAKE) test PYTHON=python$$version VENV=.venv-$$version || exit; \
	  else echo "python$$version is not installed: skipped"; fi; done

lint: setup  ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: setup  ## the tests alone
	$(BIN)/pytest -n $(WORKERS)

docs: setup  ## the site of the documentation into build/site, strictly
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fuzz: setup  ## random comparisons of the evaluators, then an hour of damage, threads, signals and sequences
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/pytest -n $(WORKERS) -m fuzz
	$(BIN)/python -m tests.fuzz --minutes $(FUZZ_MINUTES) --jobs $(FUZZ_JOBS)

cluster: setup  ## Spark as a cluster of processes on this machine, and killed applications (minutes)
	$(BIN)/pytest -m cluster

kafka: setup  ## streams and results over a Kafka broker, whose jars are fetched (two minutes)
	$(BIN)/pytest -m kafka

chaos: setup  ## disturb live runs and jobs on Spark: processes killed, disks full, files gone … (an hour)
	$(BIN)/pytest -m chaos
	$(BIN)/python tests/spark/chaos.py
	$(BIN)/python tests/spark/chaos.py --latency low

bench: setup  ## the bars of the engine, and the experiments of the JWS paper (many minutes)
	$(BIN)/python bench/bars.py
	$(BIN)/python bench/jws.py

MEASURE = $(BIN)/cqels bench run --data $(REPORT)/data --no-answers --out $(REPORT)
PARTS = taxi taxi-together taxi-60m taxi-120m taxi-240m taxi-spark single varying many social sensors city

report: setup  ## every scenario beside what was published, into docs/benchmarks.md (half an hour or more)
	$(MEASURE)/taxi taxi --size $(TAXI) --baseline $(BASELINE)
	$(MEASURE)/taxi-together taxi --size $(TAXI) --together --baseline $(BASELINE)
	for window in 60m 120m 240m; do \
	  $(MEASURE)/taxi-$$window taxi --size $(TAXI) --together --constant window=$$window || exit; done
	$(MEASURE)/taxi-spark taxi --size $(TAXI) --together --engine spark
	$(MEASURE)/single conference --experiment single --size $(SIZE)
	$(MEASURE)/varying conference --experiment varying --size $(SIZE) --most $(TRIPLES)
	$(MEASURE)/many conference --experiment many --size $(SIZE) --most $(QUERIES)
	for scenario in social sensors city; do \
	  $(MEASURE)/$$scenario $$scenario --size $(SIZE) --baseline $(BASELINE) || exit; done
	$(BIN)/cqels bench report $(PARTS:%=$(REPORT)/%) --into docs/benchmarks.md

rewrite: setup  ## fill in the expected rows of the case files, and the pages on conformance and the command line
	REWRITE=1 $(BIN)/pytest tests/test_cases.py tests/test_fixtures.py tests/test_docs.py tests/suites/test_w3c.py

figures: setup  ## what a stranger stumbles over, counted: long functions, names used twice …
	$(BIN)/python tests/house.py

graph: setup  ## the import graph of packages, into docs/imports.svg; fails if one imports upwards
	$(BIN)/python tests/import_graph.py

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
