# The project's commands. `make help` lists them; each makes the virtual environment it needs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Passed on to the command: make demo ARGS='--prompts 3', make test ARGS='-k pull'.
ARGS ?=
BENCH ?= infra/bench/*.py

# Where it is set, every worker process compiles its imports again: twice the start-up time.
unexport PYTHONDONTWRITEBYTECODE

INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -c constraints.txt
PROTOS := $(sort $(wildcard protos/pilotfish/v1/*.proto))
# An old generator on purpose: its code runs with every protobuf from 6.31 on (infra/adr/0001).
GRPC_TOOLS := grpcio-tools==1.76.0
PROTOC := .venv-protos/bin/python -m grpc_tools.protoc -Iprotos

.PHONY: help
help:  ## This list.
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.stamp-run  ## Real prompts by standard decode and by remote drafting, side by side.
	$(BIN)/pilotfish demo $(ARGS)

# The second apart: Ray forks its own processes from it, which must not have the threads of a thousand
# unit tests. Those are dealt out to two workers, file by file (ARGS=-n0: to none). Exit status 5:
# ARGS left nothing of this part.
.PHONY: test
test: $(VENV)/.stamp-dev  ## Unit, law and integration tests.
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/unit tests/law $(ARGS) || test $$? -eq 5
	$(BIN)/python -m pytest tests/integration $(ARGS) || test $$? -eq 5

.PHONY: check
check: $(VENV)/.stamp-dev  ## Lint, format, types, layers, and stubs that fit their protos.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python infra/protos/stamp.py --check

.PHONY: format
format: $(VENV)/.stamp-dev  ## Format and sort imports in place.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: bench
bench: $(VENV)/.stamp-bench  ## A short standard benchmark, against the baseline of a like machine.
	$(BIN)/pilotfish bench --num-prompts 4 --max-concurrency 1,4 --temperature 0 --max-tokens 48 \
		--baseline infra/bench/baselines $(ARGS)

.PHONY: peers
peers: $(VENV)/.stamp-bench  ## Beside transformers, vLLM and llama.cpp: ARGS='--spec-bench question.jsonl'.
	$(BIN)/python infra/bench/peers/run.py $(ARGS)

.PHONY: bench-parts
bench-parts: $(VENV)/.stamp-run  ## What the parts cost, or one: BENCH=infra/bench/exchange.py ARGS='--rounds 200'.
	@for script in $(BENCH); do \
		echo "== $$script"; \
		$(BIN)/python "$$script" $(ARGS); \
	done

.PHONY: protos
protos: .venv-protos/.stamp  ## Generate pilotfish/v1 from protos/.
	$(PROTOC) --python_out=. --pyi_out=. --grpc_python_out=. $(PROTOS)
	.venv-protos/bin/python infra/protos/stamp.py

.PHONY: protos-check
protos-check: .venv-protos/.stamp  ## Generate again, elsewhere, and compare.
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(PROTOC) --python_out="$$fresh" --pyi_out="$$fresh" --grpc_python_out="$$fresh" $(PROTOS); \
	for file in "$$fresh"/pilotfish/v1/*; do diff -u "pilotfish/v1/$${file##*/}" "$$file"; done
	.venv-protos/bin/python infra/protos/stamp.py --check

.PHONY: clean
clean:  ## Remove caches and build products; environments and cached models stay.
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find pilotfish policies actors cluster tests infra -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean  ## Remove the virtual environments too; cached models stay.
	rm -rf $(VENV) .venv-protos

# Stamps: an install is repeated when what it reads has changed, and costs nothing otherwise.

$(VENV)/.stamp-venv .venv-protos/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1 | head -1)." >&2; \
		echo "Name another one: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; \
		exit 1; \
	}
	$(PYTHON) -m venv $(@D)
	@touch $@

$(VENV)/.stamp-run: pyproject.toml constraints.txt $(VENV)/.stamp-venv
	$(INSTALL) -e '.[torch,serve]'
	@touch $@

$(VENV)/.stamp-bench: $(VENV)/.stamp-run
	$(INSTALL) -e '.[torch,serve,bench]'
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-bench
	$(INSTALL) -e '.[torch,serve,bench,dev]'
	@touch $@

.venv-protos/.stamp: Makefile .venv-protos/.stamp-venv
	.venv-protos/bin/python -m pip install --disable-pip-version-check -q $(GRPC_TOOLS)
	@touch $@
