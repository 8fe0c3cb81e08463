# Everything a newcomer or CI needs. Each target does its own set-up first; bare `make` lists them.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
CODE := $(wildcard lpgftw_ros launch scripts setup.py test benchmarks)
RUN_ARGUMENTS ?=
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MUJOCO_GL ?= egl

.DEFAULT_GOAL := help
.PHONY: help setup run graph test lint type imports unit test-ros bench docs-check format format-check doctor clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: ## make or update .venv; under a second when nothing changed
	@python=$(PYTHON); if [ -z "$$python" ]; then echo "setup: Python 3.11 to 3.13 is needed, none found. Run:" \
	"sudo apt-get install -y python3 python3-venv python3-dev, then make again"; exit 1; fi; $$python scripts/setup_env.py

run: setup ## learn five Sawyer tasks one after another and show what was learned
	@$(BIN)/lpgftw demo $(RUN_ARGUMENTS)

graph: setup ## bring the ROS 2 graph up, see it healthy, take it down
	@$(BIN)/lpgftw up --check --no-autotrain

test: setup format-check lint type imports unit test-ros ## all checks, what CI runs

format-check: setup
	@$(BIN)/ruff format --check --quiet $(CODE) || { echo "not formatted: run make format"; exit 1; }

lint: setup ## ruff
	@$(BIN)/ruff check --quiet $(CODE)

type: setup ## mypy, strict for the library layers
	@$(BIN)/mypy --no-error-summary

imports: setup
	@report=$$($(BIN)/lint-imports 2>&1) || { echo "$$report"; exit 1; }

unit: setup ## tests without ROS
	@$(BIN)/python -m pytest test/unit test/lint

test-ros: setup ## tests with real processes over real DDS
	@$(BIN)/python -m pytest test/ros

bench: setup ## measure speed as ratios within one run
	@$(BIN)/lpgftw bench sampling --json

docs-check: setup ## links, commands and names in the documentation exist
	@$(BIN)/python -m pytest test/lint -k docs

format: setup ## write the code in the project's format
	@$(BIN)/ruff check --quiet --fix --select I $(CODE); $(BIN)/ruff format --quiet $(CODE); $(BIN)/python scripts/parameter_file.py

doctor: setup ## check this machine
	@$(BIN)/lpgftw doctor

clean: ## remove caches and build results; .venv stays
	@rm -rf build install log .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
