# The commands of this repository. `make check` is what CI runs, once .ci/run has installed what more is tested against.

TOOL := go tool -modfile=tools/go.mod
CHECKS := build vet test test-long race kube-test sops-test release-test lint workflowcheck tidy generated
# Packages that do not link the Temporal server: quick to build in any way.
LIGHT := ./entities/... ./intent/... ./client/... ./runtimes/... ./activities/... ./workflows/... ./cmd/converge/... ./tests/ecsfake ./tests/fakeruntime
FUZZTIME ?= 20s
INTERLEAVINGS ?= 100000
SERVICES ?= 1000
# Where `make kube` keeps its clusters.
KUBE ?= .cache/kube
# Of `make chaos`; SEED=0 draws another run each time.
SEED ?= 0
RELEASES ?= 1000
KILLS ?= 100
# Of `make outage`.
MINUTES ?= 10
# Of `make stress`.
PKG ?= ./tests/...
N ?= 10
# Under stress these run in their short form, and three times.
LONG_ALONE := $(addprefix github.com/converge-engine/converge/tests/,chaos operators)

.DEFAULT_GOAL := help
.PHONY: help build install test test-long stress nightly race lint fmt vet workflowcheck tidy generated check upgrade-demo bench chaos outage fuzz histories freeze-histories freeze-contracts freeze-configurations temporal-cli chromium axe screenshots monitoring postgresql cluster cluster-test upgrade-test moto docker image compose-test compose-test-run sbom vulncheck kube kube-build kube-oldest kube-test rollouts flux helm sops-test release images release-test packages-test manifests applications

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What else there is, `make vet` checks: `go build ./...` would link a dozen programs of tests, and throw them away.
build: ## Build the programs, to bin/
	go build -ldflags='-s -w' -o bin/ ./cmd/converge ./cmd/converge-render ./cmd/converge-dev

install: ## Install the programs with go install
	go install ./cmd/converge ./cmd/converge-render ./cmd/converge-dev

test: ## Run the tests, as the README says
	go run ./tests/run

test-long: ## Run the tests that have a long form in it, and no others
	go run ./tests/run -long

stress: ## Run the tests of PKG (./tests/...) N (10) times beside a load on all cores; it goes on where it was interrupted
	go run ./tests/stress -n $(N) $(PKG)

# What is too long for CI. Run it before a larger piece of work ends.
nightly: ## Run what takes hours: every package of tests under stress, long chaos, a long outage, fuzzing, and the benchmarks
	$(MAKE) applications kube-oldest flux helm
	$(MAKE) stress N=10 PKG='$(filter-out $(LONG_ALONE),$(shell go list ./tests/...))'
	go run ./tests/stress -short -n 3 $(LONG_ALONE)
	$(MAKE) chaos
	$(MAKE) outage
	$(MAKE) cluster-test
	$(MAKE) upgrade-test
	$(MAKE) compose-test
	$(MAKE) packages-test
	$(MAKE) fuzz
	for n in 1 2 3; do go run ./tests/bench -run latency,cpu,history,gates,decision -rounds 20 || exit 1; done
	$(MAKE) bench

# TEMPORAL_DEBUG: the SDK takes a workflow that computes for a second for one in a deadlock; under the detector it is not.
# Properties are tried a fifth as often, in a fifth of the steps; in full they are tried by `make test-long`.
# entities/stats simulates thousands of releases in one goroutine, and has no variable of the package: nothing there can race.
race: ## Run the tests of the packages without a server under the race detector (needs a C compiler)
	CGO_ENABLED=1 TEMPORAL_DEBUG=1 go run ./tests/run -race $(filter-out %/entities/stats,$(shell go list $(LIGHT)))

lint: ## Check style and common mistakes; .golangci.yml says which and why
	$(TOOL) golangci-lint run

fmt: ## Format the code as lint wants it
	$(TOOL) golangci-lint fmt

vet: ## Run go vet
	go vet ./...

workflowcheck: ## Look for what is not deterministic in workflows and all that they call
	$(TOOL) workflowcheck -config tools/workflowcheck.yaml ./workflows/...

tidy: ## Check that every go.mod and go.sum is tidy
	@for module in $$(git ls-files go.mod '*/go.mod'); do \
		echo "== $$module"; \
		go -C $$(dirname $$module) mod tidy -diff || exit 1; \
	done
	go -C tests/kube mod tidy -diff -modfile=oldest.mod

generated: ## Check that go generate changes nothing
	@state() { { git status --porcelain; git diff; } | git hash-object --stdin; }; \
	before=$$(state); go generate ./... && \
	if [ "$$before" != "$$(state)" ]; then \
		git status --short; echo 'go generate changed files: commit them' >&2; exit 1; \
	fi

check: ## Run everything that CI runs, with the time of each part
	@for part in $(CHECKS); do \
		echo "== $$part"; start=$$(date +%s); \
		$(MAKE) --no-print-directory $$part || exit 1; \
		echo "== $$part took $$(( $$(date +%s) - start )) s"; \
	done

upgrade-demo: ## Upgrade the workers of SERVICES (1000) live services while releases are under way, and report
	go run ./tests/upgrade/demo -services $(SERVICES)

bench: ## Measure: latency, events and CPU of a release, gates, idle services, start-up
	go run ./tests/bench

chaos: ## Kill, freeze and cut off workers, server and store under a stream of every verb (SEED, RELEASES, KILLS; half an hour)
	go run ./tests/chaos -seed $(SEED) -releases $(RELEASES) -kills $(KILLS)

outage: ## Take the store away from live services for MINUTES (10), and say how soon everything went on
	go test ./tests/operators -count=1 -v -timeout 60m -run TestLongStoreOutage -args -outage $(MINUTES)m

fuzz: ## Run every fuzz target for FUZZTIME (20s), then INTERLEAVINGS (100000) of what may happen to a service
	@for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u); do \
		for target in $$(go test -list '^Fuzz' $$dir | grep '^Fuzz'); do \
			echo "== $$dir $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$dir || exit 1; \
		done; \
	done
	go test ./entities/loop -run 'TestChaos|TestStorm_' -rapid.checks $(INTERLEAVINGS) -timeout 0

histories: ## Record the workflow histories again that the tests replay (see CONTRIBUTING.md before doing so)
	go test ./tests -run TestRecordHistories -count=1 -record

freeze-histories: ## Keep the recorded histories from being changed, when a version is released (see CONTRIBUTING.md)
	go run ./tests/internal/histories/freeze

freeze-contracts: ## Keep what versions share as VERSION has it, when it is released: make freeze-contracts VERSION=v1 (see CONTRIBUTING.md)
	go test ./tests/contracts -count=1 -run TestFreezeContracts -freeze $(VERSION)

freeze-configurations: ## Keep what configurations compile to as VERSION has it, when it is released: make freeze-configurations VERSION=v1 (see CONTRIBUTING.md)
	go test ./intent/compile -count=1 -run TestFreezeConfigurations -freeze $(VERSION)

temporal-cli: ## Build the stock temporal CLI into .cache/bin for the tests that call it (minutes, once)
	go -C tests/temporalcli build -ldflags='-s -w' -o $(CURDIR)/.cache/bin/temporal github.com/temporalio/cli/cmd/temporal

# Of the programs as they were built, from what each says that it was made of. GOPROXY: nobody is asked about ourselves.
sbom: build ## Write what the programs are made of, with licenses, into bin/ (CycloneDX, JSON)
	$(TOOL) cyclonedx-gomod version > /dev/null
	for program in converge converge-render converge-dev; do \
		GOPROXY=off $(TOOL) cyclonedx-gomod bin -json -licenses -version "$$(git describe --always --dirty --tags)" -output bin/$$program.cdx.json bin/$$program || exit 1; \
	done

# By hand, since it asks a database that is not reachable everywhere; where it is not, this says so and fails.
vulncheck: ## Look for known vulnerabilities in what is called (needs https://vuln.go.dev)
	@curl -fsS -m 20 -o /dev/null https://vuln.go.dev/index/db.json || { \
		echo 'the vulnerability database, https://vuln.go.dev, cannot be reached from here: nothing was checked' >&2; exit 1; }
	go run golang.org/x/vuln/cmd/govulncheck@latest ./...

chromium: ## Install a browser for the tests of the pages, unless there is one (Debian, as root)
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y --no-install-recommends chromium; }

axe: .cache/axe/package/axe.min.js ## Fetch axe-core, which finds pages that not everybody can use (npm, once)

.cache/axe/package/axe.min.js:
	mkdir -p .cache/axe
	cd .cache/axe && npm pack --silent axe-core@4.10.3 && tar xzf axe-core-4.10.3.tgz && touch package/axe.min.js

screenshots: chromium axe ## Write a picture of every page of the board into .cache/screenshots
	mkdir -p .cache/screenshots
	go test ./tests -run TestBoardPages -count=1 -args -screenshots $(CURDIR)/.cache/screenshots

# Unpacked, not installed, so that no service is started. Debian's Alertmanager reads its template from one fixed place.
monitoring: .cache/monitoring/usr/bin/prometheus ## Fetch Prometheus and Alertmanager for the tests that ask them (Debian, as root, 30 MB, once)
	test -e /usr/share/prometheus/alertmanager || { mkdir -p /usr/share/prometheus && cp -r .cache/monitoring/usr/share/prometheus/alertmanager /usr/share/prometheus/; }

.cache/monitoring/usr/bin/prometheus:
	mkdir -p .cache/monitoring
	cd .cache/monitoring && { apt-get download prometheus prometheus-alertmanager || { apt-get update -qq && apt-get download prometheus prometheus-alertmanager; }; }
	cd .cache/monitoring && for package in *.deb; do dpkg -x $$package . ; done && rm -f *.deb

# An independent implementation of the ECS API to compare ours with; nothing else here is in Python, and nothing else needs it.
postgresql: ## Install PostgreSQL for tests/cluster, unless it is there (Debian, as root); it starts none
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || { \
		mkdir -p /etc/postgresql-common && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold postgresql; }

cluster: build postgresql ## Run Temporal on PostgreSQL, two workers and the board, on the loopback address, until Ctrl-C
	rm -rf .cache/cluster
	go run ./tests/cluster/up

cluster-test: postgresql ## Run the tests on such a cluster that take too long for CI, too: a move from a laptop, waves of workers, a restored backup
	CONVERGE_CLUSTER_TEST=1 go run ./tests/run ./tests/cluster

# FROM is a commit with the same formats of the store, of messages and of state.
FROM ?= HEAD~1
upgrade-test: postgresql ## Upgrade workers on such a cluster from the artefacts of the commit FROM to those of this one, with a release in flight
	rm -rf .cache/upgrade
	for commit in $(FROM) HEAD; do \
	  git clone -q --shared . .cache/upgrade/source && git -C .cache/upgrade/source checkout -q --detach $$(git rev-parse $$commit) && \
	  go -C tools/release run . -source ../../.cache/upgrade/source -out ../../.cache/upgrade/$$commit -platforms linux/$$(go env GOARCH) && \
	  rm -rf .cache/upgrade/source || exit 1; \
	done
	CONVERGE_EARLIER_RELEASE=$(CURDIR)/.cache/upgrade/$(FROM) CONVERGE_RELEASE=$(CURDIR)/.cache/upgrade/HEAD go run ./tests/run ./tests/cluster

moto: .cache/moto/bin/moto_server ## Install moto_server for the tests that ask it what they ask our own (PyPI, 320 MB, once)

.cache/moto/bin/moto_server:
	python3 -m venv .cache/moto
	.cache/moto/bin/pip install --quiet --disable-pip-version-check 'moto[server]==5.2.5'

kube-build: ## Build the Kubernetes control plane for tests into .cache/bin, if needed (5 to 10 minutes, once)
	go run ./tests/kubetest/build kubelab

kube-oldest: ## Build the same control plane of the oldest Kubernetes that is supported, for the test that runs on it, if needed (10 minutes, once)
	go run ./tests/kubetest/build oldest

rollouts: ## Build the controller of Argo Rollouts into .cache/bin for the test and the benchmark that run it, if needed (3 minutes, once)
	go run ./tests/kubetest/build rollouts

flux: ## Build the kustomize-controller of Flux into .cache/bin for the test and the benchmark that run it, if needed (5 minutes, once)
	go run ./tests/kubetest/build flux

helm: ## Build the helm command into .cache/bin for the test that installs the chart with it, if needed (3 minutes, once)
	go run ./tests/kubetest/build helm

manifests: ## Fetch public manifests and charts into .cache/manifests for the tests that apply them (40 MB, once)
	go run ./tests/kubetest/build manifests

applications: ## Fetch the public applications of the long form of tests/applications into .cache/manifests (50 MB, once)
	go run ./tests/kubetest/build applications

kube-test: ## Test and lint the Kubernetes control plane's own code
	go run ./tests/run -C tests/kube
	cd tests/kube && go tool -modfile=../../tools/go.mod golangci-lint run

sops-test: ## Hold our decryption of SOPS files to SOPS itself
	go run ./tests/run -C tests/sops
	cd tests/sops && go tool -modfile=../../tools/go.mod golangci-lint run

release: ## Build what a release of this commit consists of, for each platform, to bin/release (half an hour with cold caches)
	go -C tools/release run .

images: release ## Make the images of that release for containers: an OCI layout, bin/images
	rm -rf bin/images
	go -C tools/release run . images -layout ../../bin/images

image: ## Load the image of this commit, for this machine, into Docker as converge:latest
	rm -rf .cache/image
	go -C tools/release run . -out ../../.cache/image/release -platforms linux/$(shell go env GOARCH)
	go -C tools/release run . images -release ../../.cache/image/release -archives ../../.cache/image
	docker tag "$$(docker load -qi .cache/image/converge_*.docker.tar | sed 's/^Loaded image: //')" converge:latest

docker: ## Install Docker (Debian, as root), unless it is there, and build Docker Compose into .cache/docker; no daemon is started
	command -v dockerd >/dev/null && test -x /bin/busybox || { \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends docker.io busybox-static; }
	go -C tests/compose/plugin build -ldflags='-s -w' -o $(CURDIR)/.cache/docker/cli-plugins/docker-compose github.com/docker/compose/v2/cmd

compose-test: docker postgresql ## Run docker-compose.yml with images that are made here (a quarter of an hour with cold caches)
	go run ./tests/compose/daemon $(MAKE) --no-print-directory compose-test-run

compose-test-run: image
	go run ./tests/compose/images
	CONVERGE_COMPOSE=1 go test ./tests/compose -count=1 -v

release-test: ## Test and lint what builds a release
	go run ./tests/run -C tools/release
	cd tools/release && go tool -modfile=../go.mod golangci-lint run

# Of the last commit, whatever the checkout has beyond it.
packages-test: ## Install what a release has on this machine, run it, and remove it again (Debian without a running systemd, as root)
	rm -rf .cache/packages
	git clone -q . .cache/packages/checkout
	go -C tools/release run . -source ../../.cache/packages/checkout -out ../../.cache/packages/release -platforms linux/$(shell go env GOARCH)
	rm -rf .cache/packages/checkout
	CONVERGE_RELEASE=$(CURDIR)/.cache/packages/release go test ./tests/packages -count=1 -v

kube: kube-build ## Run two clusters, staging and production, until Ctrl-C: kubeconfig in $(KUBE)
	@echo "When ready, in another terminal: export KUBECONFIG=$(abspath $(KUBE))/kubeconfig"
	@.cache/bin/kubelab up --dir $(KUBE) --name staging --name production
