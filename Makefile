# SPDX-License-Identifier: Apache-2.0

# A go.work around the clone, or a CDPATH, must not lead to other code.
export GOWORK = off
unexport CDPATH

GO       ?= go
# Without the folder in what is compiled, all clones of a machine share it, and so do tests that build as a release does.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -trimpath)

FUZZTIME ?= 5m
# Tests of one package that run at the same time. Many of them wait, and what they run is no part of their process.
PARALLEL ?= 4
SOAKTIME ?= 10m
IMAGE    ?= ghcr.io/pillion-dev/pillion:dev
# What is pushed is for these platforms, with its bill of materials (SPDX) and how it was built (SLSA).
# Docker's classic image store holds neither: docker buildx create --use makes a builder that needs none.
RELEASE   = --push --platform=linux/amd64,linux/arm64 --sbom=true --provenance=mode=max
FUZZ_TARGETS = grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u
BENCH    ?= .
COUNT    ?= 5
README   ?= .
# All modules, the root first; e2e/README.md says why each is one. kubernetes-* only names tools.
MODULES  := $(dir $(wildcard go.mod e2e/go.mod e2e/*/go.mod))
WITH_GO  := $(filter-out e2e/kubernetes-%,$(MODULES))
# $(call in,FOLDERS,COMMAND) runs a command in each folder and stops at the first failure.
in        = @set -e; for folder in $(1); do (set -x; cd $$folder && $(2)); done
# Relative, because the folder may have any name.
TESTRUN   = bin/testrun
# With all that go vet finds, also in packages that have no test.
GOTEST    = $(GO) test -json -vet=all -timeout 60m
# The race detector needs cgo, which Go turns off if it finds no C compiler. It makes tests five times as slow, so it is
# for the packages with goroutines, without the tests that take long and have none.
RACE     := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)
RACED     = ./certs ./cmd/pillion/... ./inject/webhook/... ./templates/...
ALONE     = TestAdvice|TestStatusLarge|FuzzScreen|TestInjectKeepsEverything|TestInjectEngineCases|TestServeClockJumps|TestGrowthTogether|TestDirect|TestServingProperty|TestFunctionCosts|TestSharedValues|TestLoopBounds|TestMixedVariablesBounds

# What make verify also runs on older Kubernetes: the tests whose subject depends on its version.
OLDER     = 1.36 1.35 1.34
ON_OLDER  = TestInjected|TestComponents|TestPolicyChecks|TestPolicyInjects|TestReinvocationByKubernetes|TestReinvocationOrder|TestShapes|TestStolenControllerToken|TestStolenToken|TestTamper|TestTamperDefaults

# What make node-smoke runs on a real node. make node runs all.
ON_NODE   = TestSelfSigned|TestShutdownOrder|TestConfinement

# Run from the module cache; nothing need be installed.
GOLANGCI_LINT = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# The prose: .vale.ini. Its parsers need a C compiler.
VALE          = $(GO) run github.com/vale-cli/vale/v3/cmd/vale@v3.21.0
GOVULNCHECK   = $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.8.0
SYFT          = $(GO) run github.com/anchore/syft/cmd/syft@v1.52.0

.DEFAULT_GOAL := help
.PHONY: help build test e2e verify node node-smoke setup-node setup-browser testrun soak lint prose fmt fuzz fuzz-packages golden generate arrows demo recording playground site sites docs-check bench profile tidy image sbom release

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The flags are those of go test, so that they share what is compiled. The Dockerfile and make release build with the
# profile, a few percent faster at run time, and compile every dependency again.
build: ## Build bin/pillion
	@packages=$$($(GO) list -deps ./cmd/pillion | wc -l) && \
	{ $(GO) build -v -o bin/pillion ./cmd/pillion 2>&1 || echo "build failed"; } | awk -v all="$$packages" ' \
	  /^build failed$$/ { failed = 1; next } \
	  /^[^ :]+$$/ { if (++n % 50 == 0) { print "build: " n " of at most " all+0 " packages"; fflush() } next } \
	  { print; fflush() } \
	  END { if (!failed) print "build: bin/pillion"; exit failed }'

# The garbage collector, of the compiler too, takes a fifth of the CPU time at Go's default of 100. The tests that measure
# memory set their own value, and programs that tests start never see this one.
test: export GOGC ?= 400
test: testrun ## Run the tests of every change; they need nothing but Go
	$(TESTRUN) -in .,e2e/chart $(GOTEST) -parallel $(PARALLEL) ./...

e2e: testrun ## Run the tests on a real API server (KUBERNETES=1.36: on an older one; RUN='^TestTamper': only these)
	cd e2e && $(GO) run ./binaries
	$(TESTRUN) -in e2e/validity $(GOTEST) ./...
	$(TESTRUN) -in e2e $(GOTEST) -count=1 -parallel $(PARALLEL) $(if $(RUN),-run '$(RUN)') ./... # -count=1: go test does not know the programs that they run

verify: export TEST_SIZE = full
verify: testrun ## Run everything, in full size: takes hours, and needs make setup-node and make setup-browser
	$(TESTRUN) -in .,e2e/chart,e2e/validity,e2e/bench $(GOTEST) -timeout 2h ./...
	$(if $(RACE),$(TESTRUN) $(GOTEST) -race -timeout 2h -skip '^($(ALONE))$$' $(RACED),@echo "verify: without the race detector, which needs a C compiler")
	$(if $(RACE),$(TESTRUN) $(GOTEST) -race -run '^TestConcurrently$$' ./inject) # one engine, many pods
	$(TESTRUN) -in e2e/playground,e2e/shipped,e2e/release $(GOTEST) -count=1 ./...
	cd e2e && $(GO) run ./binaries
	$(TESTRUN) -in e2e $(GOTEST) -count=1 -timeout 2h -parallel $(PARALLEL) ./...
	$(MAKE) node
	@set -e; for minor in $(OLDER); do \
	  (set -x; cd e2e && KUBERNETES=$$minor $(GO) run ./binaries); \
	  (set -x; KUBERNETES=$$minor $(TESTRUN) -in e2e $(GOTEST) -count=1 -run '^($(ON_OLDER))$$' .); \
	done

testrun:
	@cd e2e && $(GO) build -buildvcs=false -o ../bin/testrun ./testrun

node: testrun ## Run Pillion on a real node: real containers (needs Linux, root and make setup-node; RUN= selects tests; UPDATE=1 writes the figures)
	$(TESTRUN) -in e2e/node $(GOTEST) -count=1 $(if $(RUN),-run '$(RUN)') . $(if $(UPDATE),-args -update)

node-smoke: ## Run a few of the tests on a real node
	$(MAKE) node RUN='^($(ON_NODE))$$'

setup-node: ## Install what make node needs: Debian packages (needs root)
	apt-get update
	apt-get install --yes --no-install-recommends containerd runc containernetworking-plugins iptables conntrack iproute2 mount

setup-browser: ## Install what the tests of the playground need: Debian packages (needs root)
	apt-get update
	apt-get install --yes --no-install-recommends chromium $$(command -v npm >/dev/null || echo nodejs npm) # Node.js's own packages bring npm and conflict with Debian's

soak: ## Create pods for SOAKTIME (10m) while templates, replicas and the API server change, break and come back
	cd e2e && TEST_SIZE=full $(GO) test -run '^TestSoak$$' -count=1 -v -timeout 2h . -args -soak=$(SOAKTIME)

lint: ## Check style, imports, formatting and prose, then known vulnerabilities
	$(call in,$(WITH_GO),$(GOLANGCI_LINT) run)
	$(if $(RACE),$(MAKE) prose,@echo "lint: without the prose, because its linter needs a C compiler")
	$(GOVULNCHECK) ./...

prose: ## Check the words of all pages and comments (needs a C compiler)
	$(VALE) --output=line .

fmt: ## Format with gofumpt and gci
	$(call in,$(WITH_GO),$(GOLANGCI_LINT) fmt)

fuzz: ## Run every fuzz target for FUZZTIME (5m), or those of the folder FUZZED
	@set -e; for folder in $(or $(FUZZED),$$($(FUZZ_TARGETS))); do \
	  (cd $$folder; for target in $$($(GO) test -list '^Fuzz' . | grep '^Fuzz'); do \
	    echo "$$folder $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x .; \
	  done); \
	done

fuzz-packages: # the folders with fuzz targets
	@$(FUZZ_TARGETS)

golden: ## Rewrite the golden files; look at the diff before you commit it
	$(GO) test $$(grep -rl inject/testing/golden --include='*_test.go' cmd inject templates | xargs -n 1 dirname | sort -u | sed 's,^,./,') -update

generate: ## Write the CustomResourceDefinitions, the JSON Schema and the page with all fields, after changes of templates/v1alpha1
	cd e2e && $(GO) run ./generate -into ../manifests/crds
	$(GO) test ./templates -run '^(TestJSONSchema|TestFieldsPage)$$' -args -update

arrows: ## Draw the imports in ARCHITECTURE.md again
	$(GO) test ./inject -run '^TestArrows$$' -update

demo: ## Show an injection on a real control plane (KEEP=1 leaves it running)
	@echo "demo: compiling what shows how far the rest is"
	@cd e2e && $(GO) run ./binaries ./demo

recording: ## Record make demo as the animation of the README, after changes of the demo
	cd e2e && $(GO) run ./recording -dir .. -from '1. The pod' -into ../manifests/docs/demo.svg make demo

playground: ## Build the playground, a folder of static files, into bin/playground (needs Node.js and npm)
	cd cmd/pillion/playground/page && npm ci --ignore-scripts --no-audit --no-fund --silent && GO='$(GO)' node build.mjs $(CURDIR)/bin/playground

site: playground ## Build the site of the documentation, a folder of static files, into bin/site (needs Node.js and npm)
	cd manifests/site && npm ci --ignore-scripts --no-audit --no-fund --silent && npm run --silent build
	node manifests/site/playground.mjs bin/playground bin/site/playground

sites: ## Build the sites of the last releases into bin/sites (SITE_ROOT=/pillion/: their path on the host)
	SITE_ROOT='$(SITE_ROOT)' node manifests/site/releases.mjs bin/sites

docs-check: ## Check the pages: links, names, outputs and the sources of figures
	$(GO) test ./manifests -run '^(TestPractices|TestNamesOnPages|TestFigures|TestVersionsElsewhere|TestPictures)$$'
	$(GO) test ./cmd/pillion -run '^(TestLinks|TestIndex|TestInlineCommands|TestShownOutput|TestCommandsPage)$$'
	$(GO) test ./inject -run '^(TestReasonCodesAreDocumented|TestUsualCauses|TestTemplatesOnPages)$$'

bench: ## Measure what Pillion costs and write it into the docs (README= leaves these; BENCH=regexp COUNT=5)
	cd e2e/bench && $(GO) run . -bench '$(BENCH)' -count $(COUNT) $(if $(README),-readme $(abspath $(README)))

profile: ## Measure what the compiler optimizes for (cmd/pillion/cpu.pprof), after changes to the request path
	cd e2e/bench && $(GO) test -trimpath -run '^$$' -bench 'Handler/.*/.*/.*/.*/.*/handler=pillion/' -benchtime 60ms -cpuprofile cpu.pprof -o bench.test .
	cd e2e/bench && $(GO) run ./profile <cpu.pprof >../../cmd/pillion/cpu.pprof && rm cpu.pprof bench.test

tidy: ## Tidy all modules
	$(call in,$(MODULES),$(GO) mod tidy)

image: ## Build the container image IMAGE; PUSH=1 pushes it, for all platforms and with an SBOM
	docker buildx build -t $(IMAGE) $(if $(PUSH),$(RELEASE),--load) .

sbom: build ## Write bin/pillion.spdx.json, the bill of materials of bin/pillion
	SYFT_CHECK_FOR_APP_UPDATE=false $(SYFT) scan --quiet file:bin/pillion -o spdx-json=bin/pillion.spdx.json

release: ## Build all files of the release VERSION (v0.1.0) from HEAD into dist/, and publish nothing (needs Node.js and npm)
	rm -rf dist
	cd e2e/release && $(GO) run . -version '$(VERSION)' -out $(CURDIR)/dist -syft '$(SYFT)'
