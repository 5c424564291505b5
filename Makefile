# Each target is one plain command; 'make help' lists them. Only Python 3.11, gcc and make are needed:
# everything else is installed into the user's cache directory, once for all checkouts.

ENGINE ?= vllm
MODEL ?=
PORT ?= 8080
TRACES_PORT ?= 8090

SETUP := exec infra/local/setup.sh
WITH_CONTROL := $(SETUP)
WITH_BOTH := $(SETUP) --engine
WITH_ALL := $(SETUP) --engine --browser
WITH_ENGINE_OF_RUN := $(SETUP) $(if $(filter sim,$(ENGINE)),,--engine)

# 'make scale PREFILL=2': only what the command line names, never a variable that happens to be set.
replicas = $(if $(filter command,$(firstword $(origin $(1)))),$(2)=$($(1)))
REPLICAS = $(call replicas,INGRESS,ingress) $(call replicas,CACHE,cache) $(call replicas,SCHEDULER,scheduler) \
	$(call replicas,PREFILL,prefill) $(call replicas,DECODE,decode) $(call replicas,TRACES,traces)
START_OPTIONS = --engine '$(ENGINE)' --model '$(MODEL)' --port '$(PORT)' --traces-port '$(TRACES_PORT)' $(REPLICAS)

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\#.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## Show the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  with ENGINE=vllm|sim MODEL=<directory or Hugging Face id> PORT=8080 PREFILL=1 DECODE=1 INGRESS=1 ..."

setup: ## Install what run and test need, and start nothing
	@$(WITH_ALL)

run: ## Start everything in the foreground; Ctrl-C drains and stops it
	@$(WITH_ENGINE_OF_RUN) python -m sub100_local run $(START_OPTIONS)

up: ## Start everything in the background
	@$(WITH_ENGINE_OF_RUN) python -m sub100_local up $(START_OPTIONS)

down: ## Drain and stop what 'up' started
	@$(WITH_CONTROL) python -m sub100_local down

status: ## Show what runs
	@$(WITH_CONTROL) python -m sub100_local status

logs: ## Follow the logs (SERVICE=prefill-1 for one)
	@$(WITH_CONTROL) python -m sub100_local logs $(SERVICE)

cache: ## Invalidate, erase or count a tenant's answers: make cache ARGS='stats --tenant demo'
	@$(WITH_CONTROL) python -m sub100_local cache $(ARGS)

scale: ## Add or remove replicas while it runs: make scale PREFILL=2
	@$(WITH_CONTROL) python -m sub100_local scale $(REPLICAS)

test: ## Run every test that needs no container and ends in minutes
	@$(WITH_ALL) infra/local/test.sh

check: ## Format, lint, types, layers, locks, then the tests
	@$(WITH_CONTROL) infra/local/check.sh
	@$(MAKE) --no-print-directory test

bench: ## Measure the control plane's own cost
	@$(WITH_CONTROL) python -m bench.control_plane

eval-cache: ## Measure the semantic cache's true and false hits: FILE=pairs.jsonl, see docs/cache-operations.md
	@$(WITH_CONTROL) python -m sub100_cache.evaluate $(or $(FILE),tests/data/cache_pairs/unseen.jsonl)

bench-cache: ## Measure what exact and semantic hits take, and what a cache that is off or dead costs
	@$(WITH_CONTROL) python -m bench.cache

bench-overlap: ## Measure what a look-up beside the dispatch costs a miss and saves a hit
	@$(WITH_CONTROL) python -m bench.overlap

bench-long: ## Measure what a 100k-token prompt costs its neighbours at ingress
	@$(WITH_CONTROL) python -m bench.long_prompt

bench-traces: ## Measure what storing a request's spans costs, and how fast a million of them are searched
	@$(WITH_CONTROL) python -m bench.traces_store

bench-ttft: ## Measure the first token from prefill against one plain engine and vLLM's own NIXL pair
	@$(WITH_BOTH) infra/local/bench-vllm.sh ttft_flows

bench-kv: ## Measure how fast KV moves between two vLLM engines, by transport, and whom that disturbs
	@$(WITH_BOTH) infra/local/bench-vllm.sh kv_transfer

bench-cancel: ## Measure how soon everything of a client that left is free
	@$(WITH_CONTROL) python -m bench.cancellation

bench-fail-over: ## Measure how long a stream pauses when its worker is killed or hangs
	@$(WITH_CONTROL) python -m bench.fail_over

bench-spec: ## Measure what n-gram speculation gains, on real vLLM
	@$(WITH_BOTH) infra/local/bench-vllm.sh speculative

bench-chunk: ## Measure what a long prompt costs the streams beside it, by chunk size, on real vLLM
	@$(WITH_BOTH) infra/local/bench-vllm.sh chunked_prefill

slo: ## Measure the share of first tokens under 100 ms, on real vLLM behind a WAN
	@$(WITH_BOTH) infra/local/bench-vllm.sh slo

verify: ## The long runs: everything above, then containers
	@$(WITH_BOTH) infra/local/verify.sh

container-test: ## Build the images and test the compose file (root, Debian)
	@$(WITH_CONTROL) infra/containers/test.sh

screenshots: ## Draw docs/images anew from the traces page (needs no stack)
	@$(SETUP) --browser python -m pytest -q tests/browser/test_pictures.py --screenshots docs/images

lock: ## Regenerate the locked requirements
	@$(WITH_CONTROL) python -m sub100_bootstrap.lock

clean: ## Remove what tests and tools left in the checkout
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
