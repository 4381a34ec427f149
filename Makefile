# Two commands on a fresh machine: `make demo`, `make test`. Needs Linux, Python 3.11 to 3.13 and make.
#   PYTHON=python3.12   the interpreter .venv is made with
#   DEVICE=cpu|cuda     the packages to install; remembered, and else chosen by whether an NVIDIA driver answers
#   NPROC=N             processes of `make train`, through torchrun
#   ARGS="..."          further arguments of train.py, pytest or the report

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

PYTHON ?= python3
DEVICE ?=
NPROC ?= 1
ARGS ?=
RUNS ?= runs
OUT ?= runs/report

VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
LAUNCH := $(PY) $(if $(filter-out 1,$(NPROC)),-m torch.distributed.run --standalone --nproc_per_node $(NPROC))
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest
# One worker a core, but not more than there is work for.
WORKERS := -n auto --maxprocesses 8 --dist worksteal

# Asking for another device than the one that was installed installs again.
ifneq ($(DEVICE),)
ifneq ($(DEVICE),$(shell cat $(INSTALLED) 2>/dev/null))
.PHONY: $(INSTALLED)
endif
endif

$(INSTALLED): pyproject.toml scripts/install.py recsys/versions.py
	@$(PYTHON) scripts/install.py $(if $(DEVICE),--device $(DEVICE))

.PHONY: help install demo train test test-gpu check format docs doctor clean report browser

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'
	@sed -n '2,5s/^# / /p' Makefile

install: $(INSTALLED) ## create .venv and install everything (the other targets do it when needed)

demo: $(INSTALLED) ## train six sub-architectures with ERASE on synthetic data and compare with the baseline
	$(PY) train.py +experiment=erase6 $(ARGS)

train: $(INSTALLED) ## train.py with arguments of your own: make train ARGS="+experiment=dcnv2 --help"
	$(LAUNCH) train.py $(ARGS)

report: $(INSTALLED) ## one page over runs, sweeps, comparisons: make report RUNS="runs multirun/DIR"; OUT=DIR
	$(PY) -m scripts.report $(RUNS) --out $(OUT) $(ARGS)

browser: $(INSTALLED) ## install Chromium for the tests of the report's page, where there is none
	@$(PY) scripts/browser.py

test: $(INSTALLED) browser ## all tests
	$(PYTEST) $(WORKERS) $(ARGS)

# pytest's status 5 means that no test carries the marker.
test-gpu: $(INSTALLED) ## the tests that need a GPU; they say so where there is none
	$(PYTEST) -m gpu $(ARGS) || [ $$? -eq 5 ]

check: $(INSTALLED) browser ## what CI runs: format, lint, types, tests
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PYTEST) $(WORKERS) $(ARGS)

format: $(INSTALLED) ## format the code and mend what lint can mend
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

docs: $(INSTALLED) ## the documentation as a site: docs/_build/html/index.html
	$(PY) -m sphinx -q -W -b html docs docs/_build/html

doctor: ## which torch, torchrec and fbgemm-gpu are here, which are wanted, and the line that mends it
	@$$([ -x $(PY) ] && echo $(PY) || echo $(PYTHON)) scripts/doctor.py

clean: ## remove .venv and the caches of the tools; runs and data stay
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
