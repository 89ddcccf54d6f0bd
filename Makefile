# `make help` prints the ## comment of every target.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help build test soak judge mutants compiled unit parts e2e-matrix sequences specs upgrade test-powershell test-autoscaler test-libvirt faults faults-model story lint fmt crds proto tables dashboards kustomize deny docs verify demo bench render components release-binary always image image-archive image-root release release-check sbom definitions workflows

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Name and tag of the image, where it is pulled from.
IMAGE ?=
# Architectures of the image: those that this machine can build for. arm64 needs Rust's target and a C compiler for it.
RUST_TARGETS := $(shell rustup target list --installed 2> /dev/null)
ARM64 := $(and $(filter aarch64-unknown-linux-gnu,$(RUST_TARGETS)),$(shell command -v aarch64-linux-gnu-gcc))
ARCHITECTURES ?= amd64 $(if $(ARM64),arm64)
# The image has an entry for Windows where this machine can build for it; WINDOWS_NODE= leaves it out.
WINDOWS_NODE ?= $(and $(filter x86_64-pc-windows-gnu,$(RUST_TARGETS)),$(shell command -v x86_64-w64-mingw32-gcc),$(BINARIES)/windows/capw-node.exe)
REVISION := $(shell git rev-parse HEAD 2> /dev/null || echo unknown)
# The time of every file of a release. For its targets alone: where it changes, the C parts of libraries are built again, and all that uses them.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2> /dev/null || echo 0)
components release-binary image image-archive image-root release: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)
OUT ?= out
# Profile of the benchmarks. dev saves an optimized build; its processor and memory figures mean nothing.
PROFILE ?= bench
SIZES ?= 10 100 1000
# What the benchmark creates: pool or deployment.
OF ?= pool
# Of the demo and the benchmark: simulated; libvirt, with real VMs; the benchmark also vsphere and proxmox, with a simulated vCenter or cluster.
HYPERVISOR ?= simulated
# Of `make faults`; SHARE=350 lets 35 % of the requests fail in all of them.
SEEDS ?= 10
# Of `make faults-model`: a number, or the word random.
SEED ?= 1
CONTAINER ?= $(shell command -v podman || command -v docker)
# Programs that are made on first use, where e2e/tools says.
TOOLS := $(or $(CAPW_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/capw)/tools
RUST_TOOLS := $(shell bash e2e/tools/rust/build.sh --path)
CARGO_NEXTEST := $(RUST_TOOLS)/cargo-nextest
CARGO_DENY := $(RUST_TOOLS)/cargo-deny
MDBOOK := $(RUST_TOOLS)/mdbook
ACTIONLINT := $(RUST_TOOLS)/actionlint
ZIZMOR := $(RUST_TOOLS)/zizmor
# Which tests run: a profile of .config/nextest.toml. The same programs are built for each of them.
TESTS ?= gate
NEXTEST := $(CARGO_NEXTEST) nextest run
# What may take hours.
LONG := $(NEXTEST) --profile long --no-capture
# The same random numbers in each run, unless it is asked for others.
ifneq ($(CAPW_SEED),random)
export PROPTEST_RNG_SEED ?= 7
endif
# Built with the tests, so that nothing is compiled twice.
XTASK := CARGO_NEXTEST=$(CARGO_NEXTEST) $(or $(CARGO_TARGET_DIR),target)/debug/xtask --output $(OUT)
# What `make deny` checks; advisories need the network.
DENY ?= advisories bans licenses sources
# The kubectl that e2e/tools builds, or any other that knows `kubectl kustomize`.
KUBECTL ?= $(firstword $(wildcard $(TOOLS)/kubectl-*/kubectl) kubectl)
# The demo uses a cluster of yours only if the command line says so, never because the variable happens to be set.
ifeq ($(origin KUBECONFIG),command line)
DEMO_ARGS += --kubeconfig "$(KUBECONFIG)"
else
unexport KUBECONFIG
endif
# A disk image of Windows for `make demo HYPERVISOR=libvirt`, and how it starts: uefi or bios.
ifeq ($(origin IMAGE),command line)
DEMO_ARGS += --image "$(IMAGE)" --firmware $(or $(FIRMWARE),uefi)
endif
# A libvirt host of yours, where IMAGE is a volume of POOL. LOGIN has the keys of the Secret with their files: KEY=FILE KEY=FILE.
ifeq ($(origin CONNECT),command line)
DEMO_ARGS += --connect "$(CONNECT)" $(if $(POOL),--pool "$(POOL)") $(if $(NETWORK),--network "$(NETWORK)") $(if $(ACCELERATION),--acceleration $(ACCELERATION)) $(LOGIN:%=--login %)
endif
KUSTOMIZATIONS := config/crd config/default config/production config/standalone config/autoscaler config/duties config/namespaced config/tenant config/clusterctl/infrastructure config/clusterctl/bootstrap config/clusterctl/control-plane

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the program capw
	cargo build

test: parts compiled ## Run the tests that a change has to pass, stories on a real control plane among them; the first run builds it in about 10 minutes
	$(XTASK) test --profile $(TESTS)

soak: parts compiled ## Run the stories N=20 times without retries, all of the gate or those with NAME in their path, and say how often each passed
	$(XTASK) soak --count $(or $(N),20) $(if $(NAME),--name $(NAME))

judge: parts compiled ## Run what takes too long for `make test` or depends on chance, hours of it (NAME=specs: one of them), and print a table
	$(XTASK) judge $(if $(NAME),--name $(NAME))

mutants: ## Take the product's guards away one at a time, in a copy of the tree, and say which unit test notices (FOCUS=pool: those with it in their file or words)
	cargo run --quiet --package xtask -- --output $(OUT) mutants $(if $(FOCUS),--focus "$(FOCUS)")

compiled: $(CARGO_NEXTEST) ## Compile all tests and what they run
	$(NEXTEST) --no-run

unit: $(CARGO_NEXTEST) ## Run the tests that start no daemon, simulator or control plane
	$(NEXTEST) --profile unit

parts: ## Build the programs that stories run: Kubernetes, Cluster API, Windows programs, the Linux of real VMs
	bash e2e/tools/build.sh
	bash e2e/tools/windows/build.sh $(WINDOWS)
	bash e2e/tools/guest/build.sh

e2e-matrix: WINDOWS = all
e2e-matrix: parts $(CARGO_NEXTEST) ## Judge what is rendered by the Windows programs of every Kubernetes minor
	CAPW_MATRIX=all $(NEXTEST) -E 'test(/^windows_matrix::/)'

sequences: $(CARGO_NEXTEST) ## Change every field of every kind under a running CAPW, about five minutes (the story "sequences" takes a few)
	CAPW_SEQUENCES=all $(LONG) -E 'test(/^sequences::/)'

specs: $(CARGO_NEXTEST) ## Run Cluster API's own end-to-end specs, about eight minutes (FOCUS=topology: those whose name matches)
	bash e2e/tools/build.sh
	$(if $(FOCUS),CAPW_SPECS="$(FOCUS)") $(NEXTEST) --no-capture --run-ignored only -E 'test(/^specs::/)'

upgrade: $(CARGO_NEXTEST) ## Upgrade from the release before this one in the middle of machines' lives, and back; builds that release the first time
	bash e2e/tools/build.sh previous
	$(NEXTEST) --no-capture --run-ignored only -E 'test(/^upgrade::/)'

test-libvirt: $(CARGO_NEXTEST) ## Run what takes minutes with a real libvirt daemon: a life of a VM for each request that may be lost
	$(NEXTEST) --run-ignored only -E 'test(/^hypervisor::drivers::libvirt::/)'

test-powershell: $(CARGO_NEXTEST) ## Run the scripts with a real PowerShell, which CAPW_PWSH names: parser, Pester, whole plans under Wine (ALL=1: every plan, kill and fault)
	bash e2e/tools/windows/build.sh
	@rm -rf $(OUT)/traces && mkdir -p $(OUT)/traces
	$(if $(ALL),CAPW_POWERSHELL=all) CAPW_TRACES="$(abspath $(OUT))/traces" $(NEXTEST) $(if $(ALL),--profile long) --run-ignored only -E 'test(/^powershell::/)' --test-threads 4 --success-output final
	CAPW_TRACES="$(abspath $(OUT))/traces" $(NEXTEST) -E 'test(trace_tests)'

test-autoscaler: parts $(CARGO_NEXTEST) ## Run the stories with a real cluster-autoscaler, which CLUSTER_AUTOSCALER names
	CLUSTER_AUTOSCALER="$(abspath $(CLUSTER_AUTOSCALER))" $(NEXTEST) --run-ignored only -E 'test(/^autoscaler::/)'

faults: $(CARGO_NEXTEST) ## Run SEEDS lives of pools and deployments behind faulty ways to their API servers (about 50 s each)
	bash e2e/tools/build.sh
	CAPW_SEEDS=$(SEEDS) $(if $(SHARE),CAPW_SHARE=$(SHARE)) CAPW_SEED=random $(LONG) -E 'test(/^faults::/)'

faults-model: $(CARGO_NEXTEST) ## Live a pool's life in memory with every fault at every request, and at every pair of requests (about half an hour)
	CAPW_PLANS=$(if $(filter random,$(SEED)),$$(shuf -i 1-1000000 -n 1),$(SEED)) $(LONG) --cargo-profile model --lib -E 'test(/^kinds::model::/)'

story: parts $(CARGO_NEXTEST) ## Run the stories whose path contains NAME, for example NAME=drain (JUDGE=1: as long as in `make judge`)
	@test -n "$(NAME)" || { echo "which story? make story NAME=drain; e2e/stories/main.rs lists them"; exit 1; }
	$(NEXTEST) $(if $(JUDGE),--profile judge) --no-capture -E 'binary(e2e) & test($(NAME))'

lint: ## Check format and lints, also of the program as releases have it
	cargo fmt --all --check
	cargo clippy --all-targets -- -D warnings
	cargo clippy --lib --bins --no-default-features -- -D warnings

fmt: ## Format the code
	cargo fmt --all

crds: ## Write crds/ from the Rust types
	cargo run --quiet -- crds --output crds

proto: ## Write proto/*.rs from proto/*.proto
	UPDATE_PROTO=1 cargo test --lib autoscaler::wire

tables: ## Write the tables in docs/ that come from the code
	UPDATE_TABLES=1 cargo test --lib -- tables:: surfaces::

definitions: ## Say which changes of crds/ since FROM break something (FROM=v0.1.0)
	@test -n "$(FROM)" || { echo "since which tag or commit? make definitions FROM=v0.1.0"; exit 1; }
	@rm -rf $(OUT)/definitions && mkdir -p $(OUT)/definitions && git archive $(FROM) crds | tar x -C $(OUT)/definitions
	cargo run --quiet --package capw-release -- definitions --from $(OUT)/definitions/crds --to crds

sbom: ## Print what the program is built from, as CycloneDX
	@cargo run --quiet --package capw-release -- sbom

$(CARGO_NEXTEST) $(CARGO_DENY) $(MDBOOK) $(ACTIONLINT) $(ZIZMOR):
	bash e2e/tools/rust/build.sh $(@F)

workflows: $(ACTIONLINT) $(ZIZMOR) ## Check .github/workflows, offline
	$(ACTIONLINT) .github/workflows/*.yaml
	$(ZIZMOR) --offline --quiet .github

dashboards: ## Write the dashboards in config/components/monitoring from their queries
	cargo run --quiet --package capw-release -- dashboards --output config/components/monitoring/dashboards

kustomize: ## Check that every kustomization builds
	@set -e; for k in $(KUSTOMIZATIONS); do $(KUBECTL) kustomize $$k > /dev/null; echo "kustomize $$k: ok"; done

deny: $(CARGO_DENY) ## Check the dependencies: licences, bans, sources, and advisories (these need the network)
	$(CARGO_DENY) check $(DENY)

# The site has the layout of the repository, so that links from pages to source files work in it too.
docs: $(MDBOOK) ## Build the documentation: the book in out/site/docs and the code's own in target/doc
	rm -rf $(OUT)/site
	$(MDBOOK) build --dest-dir $(abspath $(OUT))/site/docs
	cp -R config e2e proto src $(OUT)/site/
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --lib --document-private-items

verify: lint unit kustomize ## Check everything that needs no control plane, also whether crds/ is current
	$(MAKE) deny DENY="bans licenses sources"
	cargo run --quiet -- crds --output $(OUT)/crds
	@for f in $(OUT)/crds/*.yaml; do diff -q "$$f" "crds/$$(basename "$$f")" || { echo "crds/ is stale: run make crds"; exit 1; }; done

demo: ## Show three Windows nodes in a new cluster; KUBECONFIG=FILE uses yours instead, HYPERVISOR=libvirt makes real VMs, of your Windows with IMAGE=FILE, on a host of yours with CONNECT=ADDRESS
	bash e2e/tools/build.sh
	cargo build --bin capw --example demo
	cargo run --quiet --example demo -- --hypervisor $(HYPERVISOR) $(DEMO_ARGS)

bench: ## Measure API requests, hypervisor calls, memory and times for SIZES="10 100 1000" machines, and fail where a goal is missed with GOALS=1 (16 minutes on two cores, plus an optimized build)
	bash e2e/tools/build.sh
	$(AS_RELEASED) cargo bench --profile $(PROFILE) --bench lifecycle -- --of $(OF) --hypervisor $(HYPERVISOR) $(if $(GOALS),--goals) $(SIZES)

render: ## Measure how long rendering takes, as a share of its 5 ms budget
	$(AS_RELEASED) cargo bench --profile $(PROFILE) --bench render

RELEASE := cargo run --quiet --package capw-release --

components: ## Write a local clusterctl repository to out/clusterctl (IMAGE=REGISTRY/capw:TAG)
	@test -n "$(IMAGE)" || { echo "which image? make components IMAGE=REGISTRY/capw:TAG"; exit 1; }
	@$(RELEASE) components --image $(IMAGE) --kubectl $(KUBECTL) --output $(OUT)/clusterctl

# The same bytes wherever the checkout is: paths do not get into the program. It needs no file beside itself, not even a C library. Whatever
# CARGO_TARGET_DIR says, it is built in the checkout: two that share a folder would not be built twice. The default features are for tests.
target-amd64 := x86_64-unknown-linux-gnu
target-arm64 := aarch64-unknown-linux-gnu
# Without what the optimizer notes about aliases, this crate takes a third of the time. Relocations are packed, equal functions folded: a twentieth less.
OPTIMIZED = -C llvm-args=-enable-noalias-to-md-conversion=false
LINKED-amd64 = -C link-arg=-Wl,-z,pack-relative-relocs -C link-arg=-Wl,--icf=all
# What is measured is built like what is published.
AS_RELEASED = $(if $(filter bench,$(PROFILE)),RUSTFLAGS="$(OPTIMIZED) $(LINKED-$(subst x86_64,amd64,$(shell uname -m)))")
MAPPED = --remap-path-prefix=$(CURDIR)=/src --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo
BINARIES := $(OUT)/programs

release-binary: ## Build the optimized static program for ARCHITECTURES="amd64 arm64", and that for Windows nodes, into out/programs
	$(if $(filter arm64,$(ARCHITECTURES)),,@echo "without arm64: rustup target add aarch64-unknown-linux-gnu, and install gcc-aarch64-linux-gnu")
	$(if $(WINDOWS_NODE),,@echo "without Windows: rustup target add x86_64-pc-windows-gnu, and install gcc-mingw-w64-x86-64")
	@set -e; for program in $(ARCHITECTURES:%=$(BINARIES)/%/capw) $(WINDOWS_NODE); do $(MAKE) --no-print-directory $$program; done

$(BINARIES)/%/capw: always
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CAPW_REVISION=$(REVISION) \
	CFLAGS="-ffile-prefix-map=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo" RUSTFLAGS="-C target-feature=+crt-static $(OPTIMIZED) $(LINKED-$*) $(MAPPED)" \
	cargo build --locked --target-dir target --profile $(BINARY_PROFILE) --package cluster-api-provider-windows --no-default-features --bin capw --target $(target-$*)
	@mkdir -p $(@D) && cp target/$(target-$*)/$(patsubst dev,debug,$(BINARY_PROFILE))/capw $@

# The linker would write the time into it.
$(BINARIES)/windows/capw-node.exe: always
	CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc \
	RUSTFLAGS="-C target-feature=+crt-static -C link-arg=-Wl,--no-insert-timestamp $(MAPPED)" \
	cargo build --locked --target-dir target --profile $(BINARY_PROFILE) --package capw-node --bin capw-node --target x86_64-pc-windows-gnu
	@mkdir -p $(@D) && cp target/x86_64-pc-windows-gnu/$(patsubst dev,debug,$(BINARY_PROFILE))/capw-node.exe $@
# dev builds quickly, for a look at an image; a release is optimized.
BINARY_PROFILE ?= release

image: release-binary ## Write the image as an OCI layout to out/image, without a container engine, and print its digest
	@$(RELEASE) image --revision $(REVISION) --output $(OUT)/image $(foreach arch,$(ARCHITECTURES),--program $(arch)=$(BINARIES)/$(arch)/capw) $(WINDOWS_NODE:%=--windows-program %)

image-archive: image ## Write what docker load takes to out/capw-ARCHITECTURE.tar (IMAGE=REGISTRY/capw:TAG)
	@set -e; for arch in $(ARCHITECTURES); do \
	  $(RELEASE) archive --layout $(OUT)/image --architecture $$arch --image $(or $(IMAGE),capw:v$(VERSION)) --output $(OUT)/capw-$$arch.tar; echo $(OUT)/capw-$$arch.tar; done

# For those who build with podman or docker: podman build -f Containerfile .
image-root: release-binary ## Write what Containerfile copies into out/
	@$(RELEASE) root --output $(OUT)/root

RELEASED := $(OUT)/release
# Equal files make an equal archive.
TAR = tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(SOURCE_DATE_EPOCH) --mode=go=rX,u+rw
manifest = $(KUBECTL) kustomize config/$(1) | sed 's|example.invalid/capw/capw:unreleased|$(IMAGE)|' > $(RELEASED)/$(2)

release: ## Write everything that a release publishes to out/release (IMAGE=REGISTRY/capw:TAG)
	@test -n "$(IMAGE)" || { echo "which image? make release IMAGE=REGISTRY/capw:v$(VERSION)"; exit 1; }
	@$(MAKE) --no-print-directory image-archive components
	@rm -rf $(RELEASED) $(OUT)/shell && mkdir -p $(RELEASED) $(OUT)/shell/completions
	@set -e; $(foreach arch,$(ARCHITECTURES),\
	  cp $(BINARIES)/$(arch)/capw $(RELEASED)/capw-linux-$(arch); mv $(OUT)/capw-$(arch).tar $(RELEASED)/capw-image-$(arch).tar; \
	  $(RELEASE) sbom --target $(target-$(arch)) > $(RELEASED)/capw-linux-$(arch).cdx.json;)
	@$(TAR) -cf $(RELEASED)/capw-v$(VERSION).oci.tar -C $(OUT)/image .
	@set -e; for shell in bash zsh fish powershell; do $(BINARIES)/$(firstword $(ARCHITECTURES))/capw completion $$shell > $(OUT)/shell/completions/capw.$$shell; done
	@$(BINARIES)/$(firstword $(ARCHITECTURES))/capw man --output $(OUT)/shell/man
	@$(TAR) -cf $(RELEASED)/capw-completions-and-man-pages.tar -C $(OUT)/shell .
	@cp metadata.yaml $(OUT)/clusterctl/*-windows/v$(VERSION)/*-components.yaml config/clusterctl/templates/*.yaml $(RELEASED)/
	@cp config/components/monitoring/dashboards/*.json config/components/monitoring/rules.yaml $(RELEASED)/
	@$(call manifest,default,capw.yaml); $(call manifest,production,capw-production.yaml); $(call manifest,standalone,capw-standalone.yaml)
	@awk '/^## \[/ { if (++n > 1) exit; next } n' CHANGELOG.md > $(RELEASED)/release-notes.md
	@! grep -l example.invalid $(RELEASED)/*.yaml || { echo "a manifest has no image"; exit 1; }
	@cd $(RELEASED) && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum > SHA256SUMS && cat SHA256SUMS

release-check: ## Check what needs an optimized build: two clones give the same release, and its program starts without rights
	KUBECTL="$(if $(findstring /,$(KUBECTL)),$(abspath $(KUBECTL)),$(KUBECTL))" IMAGE="$(IMAGE)" bash release/check.sh $(OUT)/release-check
