# Everything a newcomer or CI needs. Each target does its own set-up first; bare `make` lists them.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
CODE := $(wildcard lpgftw_ros launch scripts setup.py test benchmarks)
RUN_ARGUMENTS ?=
SUDO ?= $(if $(filter 0,$(shell id -u)),,sudo)
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MUJOCO_GL ?= egl
once_more = $(BIN)/python -m pytest $(1) || { [ $$? -eq 1 ] && echo "failed tests, once more and alone:" && \
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(2); }

.DEFAULT_GOAL := help
.PHONY: help setup workspace run graph test lint type imports unit test-ros test-browser test-install bench docs-check format format-check doctor clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: ## make or update .venv; under a second when nothing changed
	@python=$(PYTHON); if [ -z "$$python" ]; then echo "setup: Python 3.11 to 3.13 is needed, none found. Run:" \
	"sudo apt-get install -y python3 python3-venv python3-dev, then make again"; exit 1; fi; $$python scripts/setup_env.py

workspace: ## with ROS 2 sourced, once before colcon build: link the interfaces beside this package, install its Python packages
	@python3 scripts/setup_env.py --workspace

run: setup ## close five drawers, one learned after another, and show the gain
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

# What waits for processes and threads can fail because the machine was busy: a failed test is run once more, alone, and both runs are printed.
unit: setup ## tests without ROS
	@$(call once_more,-n 2 --dist loadfile test/unit test/lint test/docs,test/unit test/lint test/docs)

test-ros: setup ## tests with real processes over real DDS
	@$(call once_more,-n 2 --dist loadfile -m "not alone" test/ros,-m "not alone" test/ros)
	@$(call once_more,-m alone test/ros,-m alone test/ros)

test-browser: setup ## the page in a headless Chromium, which is installed if it is missing
	@command -v chromium >/dev/null || $(SUDO) apt-get install -y --no-install-recommends chromium
	@$(BIN)/python -m pytest test/ros/test_dashboard_browser.py test/ros/test_dashboard_arm.py -rs

test-install: setup ## both installs on top of a sourced ROS 2, with the system's Python; many minutes
	@$(BIN)/python -m pytest test/install -rs

bench: setup ## measure speed as ratios within one run
	@$(BIN)/lpgftw bench sampling --json

docs-check: setup ## run every code block of the documentation, list them, follow every link
	@$(BIN)/python -m pytest test/docs --durations=15 && $(BIN)/python test/docs/documents.py && $(BIN)/python -m pytest test/lint -k docs

format: setup ## write the code in the project's format
	@$(BIN)/ruff check --quiet --fix --select I $(CODE); $(BIN)/ruff format --quiet $(CODE); $(BIN)/python scripts/settings_files.py

doctor: setup ## check this machine
	@$(BIN)/lpgftw doctor

clean: ## remove caches and build results; .venv stays
	@rm -rf build install log .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
