# fedquilt: `make demo` and `make test` do everything on a fresh machine; the demo installs only what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two stamps: what the demo needs, and on top of it what development needs (tests, linters, the site, Ray, Flower, ...).
CORE := $(VENV)/.installed-core
STAMP := $(VENV)/.installed
# Without compiling: that is half of the time, for modules that are mostly never imported; Python compiles those that are.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt
# Real graphs, where there are any; tests that need them skip with a reason otherwise.
ifneq ($(wildcard ../shared/data),)
export FEDQUILT_DATA ?= $(abspath ../shared/data)
endif
# Two test workers with one thread each beat one worker with two threads.
TEST_WORKERS ?= 2
# How long `make fuzz` attacks; without FUZZ_SEED, the seed is the time of day, and is printed.
FUZZ_SECONDS ?= 60

.PHONY: help install demo docs tutorials options test test-e2e test-long fuzz lint audit bench clean
help:            ## show this help
	@grep -E '^[a-z0-9-]+: .*##' Makefile | sed -E 's/:.*## /\t/'

install: $(STAMP)  ## a .venv with everything for development
$(CORE): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing fedquilt and what it needs to run (PyTorch is most of it); this happens once."
	$(PIP) -e .
	touch $(CORE)
$(STAMP): $(CORE)
	@echo "Installing what the tests, the linters and the site need; this happens once."
	$(PIP) -e '.[dev]'
	-@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null 2>&1  # half a minute, which Flower's many processes save at every start
	touch $(STAMP)

demo: $(CORE)    ## what clients with few labels gain by joining: six methods on a graph that is built in; tables and pictures
	$(BIN)/fedquilt demo

docs: install    ## the site in build/site, from docs/; fails at a broken link or anchor
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open build/site/index.html; with search: $(BIN)/python -m http.server --directory build/site"

tutorials: install  ## run the scripts in examples/ and write them and what they print into their pages
	OMP_NUM_THREADS=1 $(BIN)/python docs/hooks/tutorials.py

options: install  ## write docs/options.md, the typed keyword arguments and the Flower app's settings anew from RunConfig
	$(BIN)/python -m fedquilt.runs.option_files
	$(BIN)/python -m fedquilt.federation.coordinator.config

test: install    ## all tests but the next
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal

test-e2e: install  ## real processes: a federation of Flower with TLS and node keys, workers that are killed; about ten minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m e2e -n $(TEST_WORKERS)

test-long: install  ## what is too slow for make test: every method over Flower's real processes, and further variants of suites
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m long -n $(TEST_WORKERS) --dist worksteal

fuzz: install    ## attacks by generators (docs/results/attacks.md): FUZZ_SECONDS=60, FUZZ_SEED=N, FUZZ_ONLY=kill,damage; findings in .fuzz
	$(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED)) $(if $(FUZZ_ONLY),--only $(FUZZ_ONLY))

lint: install    ## ruff, mypy, and what must not be in the source (pickle, eval, a shell, ...)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m fuzz.static src

audit: install   ## known vulnerabilities of the versions in constraints.txt, by pip-audit; needs the internet, and says so
	test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install --quiet pip-audit; }
	$(BIN)/python -m fuzz.audit .venv-audit/bin/pip-audit constraints.txt

bench: install   ## speed and memory against a plain loop over clients with PyG, and against earlier results
	$(BIN)/fedquilt bench --history benchmarks/history
	$(BIN)/python -m benchmarks.latent_memory

clean:           ## remove the .venv and caches
	rm -rf $(VENV) .venv-audit .fuzz build .pytest_cache .ruff_cache .mypy_cache .hypothesis
