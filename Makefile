# Every target says in its ## comment what it does: `make help`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help build test unit e2e e2e-matrix lint fmt crds proto tables kustomize deny verify demo bench render components image

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
IMAGE ?= example.invalid/capw/capw:v$(VERSION)
OUT ?= out
# Of the benchmarks: dev saves a build with optimization, and says nothing about processor and memory.
PROFILE ?= bench
SIZES ?= 10 100 1000
# pool or deployment.
OF ?= pool
# Stories at the same time: they wait for much of their time, and one of them for nearly all of it.
STORIES ?= $(shell echo $$((2 * $$(nproc) + 1)))
CONTAINER ?= $(shell command -v podman || command -v docker)
CARGO_DENY_VERSION := 0.20.2
# The kubectl that e2e/tools builds, or any other one that knows `kubectl kustomize`.
KUBECTL ?= $(firstword $(wildcard .cache/tools/kubectl-*/kubectl) kubectl)
# Yours only if you say so on the command line: nobody's cluster is touched because a variable happened to be set.
ifeq ($(origin KUBECONFIG),command line)
DEMO_ARGS += --kubeconfig "$(KUBECONFIG)"
else
unexport KUBECONFIG
endif
KUSTOMIZATIONS := config/crd config/default config/standalone config/autoscaler config/clusterctl/infrastructure config/clusterctl/bootstrap config/clusterctl/control-plane

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the program capw
	cargo build

test: unit e2e ## Run all tests: unit, property, snapshot, wiring, then the stories on a real control plane

unit: ## Run the tests that need nothing but this folder
	cargo test --lib --bins

e2e: ## Run the stories: a real control plane, Cluster API and capw (the first time builds them, about 10 minutes)
	bash e2e/tools/build.sh
	bash e2e/tools/windows/build.sh
	cargo test --test e2e -- --test-threads $(STORIES)

e2e-matrix: ## Run the stories, and the Windows programs of every Kubernetes minor against everything that is rendered for them
	bash e2e/tools/build.sh
	bash e2e/tools/windows/build.sh all
	CAPW_MATRIX=all cargo test --test e2e -- --test-threads $(STORIES)

lint: ## Check format and lints
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings

fmt: ## Format the code
	cargo fmt

crds: ## Write crds/ from the Rust types
	cargo run --quiet -- crds --output crds

proto: ## Write proto/*.rs from proto/*.proto
	UPDATE_PROTO=1 cargo test --lib autoscaler::wire

tables: ## Write the tables in docs/ that come from the code
	UPDATE_TABLES=1 cargo test --lib tables::

kustomize: ## Check that every kustomization builds
	@set -e; for k in $(KUSTOMIZATIONS); do $(KUBECTL) kustomize $$k > /dev/null; echo "kustomize $$k: ok"; done

deny: ## Check licences, advisories (needs the network) and sources of the dependencies; installs cargo-deny if it is missing
	@cargo deny --version > /dev/null 2>&1 || cargo install --locked cargo-deny@$(CARGO_DENY_VERSION)
	cargo deny check

verify: lint unit kustomize ## Everything that can be checked without a control plane: lint, unit tests, stale crds/, kustomizations, cargo-deny
	cargo run --quiet -- crds --output $(OUT)/crds
	@for f in $(OUT)/crds/*.yaml; do diff -q "$$f" "crds/$$(basename "$$f")" || { echo "crds/ is stale: run make crds"; exit 1; }; done
	@if cargo deny --version > /dev/null 2>&1; then cargo deny --offline check bans licenses sources; \
	else echo "NOT CHECKED: licences and sources of dependencies, because cargo-deny is not installed; make deny installs it"; fi

demo: ## Three Windows nodes in a cluster made for it; KUBECONFIG=FILE uses yours instead
	bash e2e/tools/build.sh
	cargo build --bin capw --example demo
	cargo run --quiet --example demo -- $(DEMO_ARGS)

bench: ## Measure API requests, hypervisor calls, memory and times for SIZES="10 100 1000" machines (16 minutes on two cores, and a build with optimization)
	bash e2e/tools/build.sh
	cargo bench --profile $(PROFILE) --bench lifecycle -- --of $(OF) $(SIZES)

render: ## Measure how long rendering takes, as a share of the 5 ms that it may take
	cargo bench --profile $(PROFILE) --bench render

components: ## Write a local clusterctl repository to out/clusterctl
	@set -e; repository=$(OUT)/clusterctl; rm -rf $$repository; \
	for part in infrastructure bootstrap control-plane; do \
	  to=$$repository/$$part-windows/v$(VERSION); mkdir -p $$to; cp metadata.yaml $$to/; \
	  $(KUBECTL) kustomize config/clusterctl/$$part | sed 's|example.invalid/capw/capw:v$(VERSION)|$(IMAGE)|' > $$to/$$part-components.yaml; \
	  echo $$to; \
	done; \
	cp config/clusterctl/templates/*.yaml $$repository/infrastructure-windows/v$(VERSION)/

image: ## Build the container image (IMAGE=NAME) with podman or docker
	@test -n "$(CONTAINER)" || { echo "neither podman nor docker is installed: install one, or name one with CONTAINER=…"; exit 1; }
	$(CONTAINER) build -f Containerfile -t $(IMAGE) .
