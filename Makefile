# Every task of this repository. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

RUN := .venv/bin
STACK ?= dev
PORT ?= 8080

.PHONY: help
help:  ## List all tasks
	@awk -F ':.*## ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST) \
		| if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9]*m//g'; fi

##@ Set-up

# uv comes from PATH, else from the cache (dev/kaos_dev/cache.py says where), else into it.
.venv/.synced: pyproject.toml uv.lock service/pyproject.toml components/pyproject.toml dev/pyproject.toml
	@uv="$$(command -v uv || true)"; \
	if [ -z "$$uv" ]; then \
		home="$$(python3 dev/kaos_dev/cache.py)/uv"; uv="$$home/bin/uv"; \
		if ! "$$uv" --version > /dev/null 2>&1; then \
			echo "Installing uv into $$home"; \
			python3 -m venv "$$home"; \
			"$$home/bin/python" -m pip install --quiet --disable-pip-version-check "uv>=0.9"; \
		fi; \
	fi; \
	"$$uv" sync --frozen --quiet
	@touch $@

.PHONY: setup
setup: .venv/.synced  ## Install everything into .venv (the other tasks do it too)
	@:

##@ Run

.PHONY: demo
demo: .venv/.synced  ## Play a conversation through the whole chain, without a cluster
	@$(RUN)/python -m kaos_dev.demo demo

.PHONY: dev
dev: .venv/.synced  ## Keep the demo's store running on PORT (8080) for work on the service
	@$(RUN)/python -m kaos_dev.demo dev --port "$(PORT)"

.PHONY: image
image: .venv/.synced  ## Build the image, push it to REGISTRY, pin it in STACK (BASE=..., INSECURE=1)
	@$(RUN)/python -m kaos_dev.image --registry "$(REGISTRY)" --stack "$(STACK)" \
		$(if $(BASE),--base "$(BASE)") $(if $(filter 1,$(INSECURE)),--insecure)

##@ Check

.PHONY: test
test: lint .venv/.synced  ## Lint, types, and all tests but the slow ones
	@$(RUN)/pytest -m "not slow" --durations=15 --numprocesses=2 --dist=loadfile

.PHONY: test-slow
test-slow: .venv/.synced  ## The slow tests: clean installs, large sets
	@$(RUN)/pytest -m slow

.PHONY: lint
lint: .venv/.synced  ## Style, types, dependency directions
	@$(RUN)/ruff check --quiet .
	@$(RUN)/ruff format --check . > /dev/null 2>&1 || $(RUN)/ruff format --check .
	@$(RUN)/lint-imports --no-cache > /dev/null || $(RUN)/lint-imports --no-cache
	@found="$$($(RUN)/pyright --warnings)" || { echo "$$found"; exit 1; }; tail -1 <<< "$$found"

.PHONY: format
format: .venv/.synced  ## Mend what style checks can mend
	@$(RUN)/ruff check --fix --quiet . || true
	@$(RUN)/ruff format --quiet .

.PHONY: bench
bench: .venv/.synced  ## Speed beside floors and the published kaos-memory, asserted as ratios
	@$(RUN)/python -m bench

.PHONY: bench-recall
bench-recall: .venv/.synced  ## Retrieval quality on LoCoMo beside two peers, with asserted floors
	@$(RUN)/python -m bench.recall

##@ Cluster

.PHONY: cluster-tools
cluster-tools: .venv/.synced  ## Build Kubernetes, the Pulumi engine and providers once (20 minutes)
	@$(RUN)/python -m tests.e2e.cluster tools

.PHONY: cluster-up
cluster-up: .venv/.synced  ## Start a one-node cluster on this machine (root), from any half state
	@$(RUN)/python -m tests.e2e.cluster up

.PHONY: cluster-down
cluster-down: .venv/.synced  ## Stop and remove it, from any half state
	@$(RUN)/python -m tests.e2e.cluster down

.PHONY: e2e
e2e: .venv/.synced  ## Deploy with the real engine on a real cluster, and prove the store there
	@$(RUN)/python -m tests.e2e
