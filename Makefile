GO      ?= go
TOOL     = GOWORK=off $(GO) tool -modfile=tools/go.mod
PACKAGES = work

.PHONY: all help demo browser monitoring reference manuals site api test checks unit unit386 stress chaos operations kubernetes faults seeds fuzz mutants lint cross sizes format bench bench-short bench-record bench-curves bench-figures prepare tidy modules rehearsal

all: test

# demo shows three candidates, the loss of leaders and the succession on servers
# inside its own process: it needs Go and nothing else.
# DEMOFLAGS="--zk host:port,..." uses a ZooKeeper of yours. Without cgo it compiles faster, and
# without the workspace the first run downloads one module. While it compiles, it prints what every two seconds.
demo:
	@echo "Compiling the demo: 10 to 20 s on two idle cores, the first time ..."
	@binary=$$(mktemp) && trap 'rm -f "$$binary"' EXIT && trap 'exit 130' INT TERM && \
	CGO_ENABLED=0 GOWORK=off tools/progress.sh 2 $(GO) build -ldflags='-s -w' -o "$$binary" ./demo && "$$binary" $(DEMOFLAGS)

# browser checks in a browser that web pages cannot control a dev-server, and that the page of elector run
# updates itself. In this browser and in Firefox it checks that README's picture is aligned, and writes
# screenshots to SCREENSHOTS. Debian's packages are chromium and firefox-esr.
BROWSER     = chromium
FIREFOX     = firefox-esr
SCREENSHOTS = $(CURDIR)/screenshots

browser:
	$(GO) test -count 1 ./demo -run '^TestBrowser' -args -browsers $(BROWSER),$(FIREFOX) -screenshots $(SCREENSHOTS)
	$(GO) test -count 1 ./cmd/elector -run '^TestBrowser' -args -browser $(BROWSER)

# monitoring checks the alert rules and the dashboard in deploy, with Prometheus. Debian's package is prometheus.
PROMETHEUS = prometheus
PROMTOOL   = promtool

monitoring:
	$(PROMTOOL) check rules deploy/prometheus/leaderelection.yml deploy/prometheus/elector.yml
	$(PROMTOOL) test rules deploy/prometheus/rules_test.yml
	$(GO) test -count 1 ./cmd/elector -run '^TestMonitoring_' -args -prometheus $(PROMETHEUS)

# reference writes docs/commands, the help texts of the commands.
reference:
	$(GO) test ./cmd/elector ./cmd/raftlog -run '^TestReference_MatchesHelpTexts$$' -update

# manuals writes the manual pages of the commands, and their completions for bash, zsh and fish, to SHARE, in
# directories with the names of those below /usr/share on Debian.
SHARE = $(CURDIR)/share

manuals:
	$(GO) test -count 1 -timeout 30m ./cmd/elector ./cmd/raftlog -run '^TestManuals_AreComplete$$' -args -manuals $(SHARE)

# site builds a site of docs, with search, in SITE, and checks its links. Debian's package is mkdocs-material.
# SITEFLAGS=-external lists the links to other hosts.
SITE = $(CURDIR)/site

site:
	cd tools && GOWORK=off $(GO) run ./repository site -o $(SITE) $(SITEFLAGS)

# api writes docs/api.txt, the exported API of all packages. Its difference shows what a change does to users.
api:
	cd tools && GOWORK=off $(GO) test -count 1 ./repository -run '^TestAPI_DocumentIsUpToDate$$' -args -update

# help lists the targets, each with the first sentence of its comment.
help:
	@awk '/^# /{comment = comment substr($$0, 3) " "; next} \
		comment{name = comment; sub(/ .*/, "", name); sub(/([.]|: it) .*/, "", comment); about[name] = substr(comment, length(name) + 2); comment = ""} \
		/^[a-z0-9-]+:/{name = $$1; sub(/:.*/, "", name); if (about[name]) printf "make %-13s  %s\n", name, about[name]; delete about[name]}' Makefile

# The client library has a data race if it reconnects while requests are queued (its pull
# request 35, open since 2020). These tests do not test the client library, so that package is
# compiled without instrumentation.
RACE = -race -gcflags=github.com/go-zookeeper/zk=-race=false

# In a bubble of testing/synctest, a timer with duration 0 is run by the goroutine that creates
# it, and the race detector crashes if two goroutines do so at the same time (Go 1.26.8: the
# timers of a bubble share one context of the detector). So tests in bubbles use one processor
# each. The detector finds races by the happens-before order, for which one processor is enough.
# The packages of all modules are written as directories: PACKAGES=./recipes/... selects some. The first use of such a
# variable replaces it by its value, because the commands take seconds.
ALL     = $(eval ALL := $(sort $(patsubst $(shell GOWORK=off $(GO) list -m)%,.%,$(shell $(GO) list $(PACKAGES)))))$(ALL)
BUBBLES = $(eval BUBBLES := $(filter-out $(CONTROLLERS),$(filter $(shell grep -rlE --include=*_test.go '"testing/synctest"|electiontest.WithFakeTime|bubble\.Run' . | xargs -n 1 dirname | sort -u),$(ALL))))$(BUBBLES)

# At the end of each process, the detector waits for a second for races of goroutines that still run. Tests
# check that none run then.
export GORACE = atexit_sleep_ms=0

# Tests that use one goroutine have no race, and the detector makes them up to thirteen times as slow. So the
# packages that start no goroutine are tested without it.
STARTS     = (^|[[:space:]])go (func|[a-z][A-Za-z.]*)\(|[.]Go\(|Parallel\(|"(testing/synctest|os/exec|net/http/httptest)"|testenv/(ensemble|dbserver)"
SEQUENTIAL = $(eval SEQUENTIAL := $(filter-out $(BUBBLES) $(CONTROLLERS) $(shell grep -rlE --include=*.go '$(STARTS)' . | xargs -n 1 dirname | sort -u),$(filter $(shell find . -name '*_test.go' | xargs -n 1 dirname | sort -u),$(ALL))))$(SEQUENTIAL)

# Tests of random faults make one of eight runs with the detector (bubble.Runs), and all of them without it.
RANDOM      = $(eval RANDOM := $(filter $(shell grep -rlE --include=*_test.go 'faultschedule[.]Run|bubble[.]Runs' . | xargs -n 1 dirname | sort -u),$(ALL)))$(RANDOM)
RANDOMTESTS = Schedules|Linearizable|RandomFaults

# The go command starts the tests of packages in the order of its arguments. Those that take longest are first, so
# that none of them runs alone at the end.
SLOW = ./adapters/changefeed/mongodb ./adapters/raftlog ./cmd/elector ./cmd/raftlog ./adapters/changefeed/postgres ./adapters/changefeed/mysql \
	./recipes/lock ./adapters/changefeed/kubernetes ./recipes/shard ./internal/zk/contender ./zktest $(SIMULATION)
slowfirst = $(filter $(1),$(SLOW)) $(filter-out $(SLOW),$(1))

# Tests that call Parallel wait for servers, processes and timeouts most of the time, and so do the packages with
# such tests. So one more of them runs at the same time than there are cores. With twice as many, and four groups of
# tests, the load of two cores reached 26, and sessions expired in tests that are not about expiry.
PARALLEL = -parallel 8
WAITING  = -p $$((1 + $$(getconf _NPROCESSORS_ONLN)))

# The simulation of the raft log is one of them. It takes too long for make unit.
SIMULATION = ./adapters/raftlog/internal/simulation

# The store on RethinkDB is not part of the default build.
STORES = ./adapters/changefeed/storeurl

# The packages of Kubernetes with which controllers are linked take three minutes of processor time to compile
# without a cache, and longer for the race detector. go vet compiles them without it in any case. So these tests
# run without it, and make cross does not compile them for other platforms. With it:
# make test PACKAGES=./adapters/controllerruntime CONTROLLERS=
CONTROLLERS = ./adapters/controllerruntime ./examples/clientgo ./examples/tasks/kubernetes ./integrationtest/kubernetes

SERVED     = $(eval SERVED := $(filter-out $(BUBBLES) $(SEQUENTIAL) $(CONTROLLERS),$(ALL)))$(SERVED)

# test runs everything: lint, unit and integration tests, with the race detector.
# With ZKTEST_REAL=required, a test fails, and is not skipped, if a server or client that it needs
# is not installed. The groups run concurrently, because many tests wait for servers, processes and
# session timeouts, and lint, which computes, uses the processor meanwhile. Those that take longest start first.
# The time limits allow for machines that run other programs as well. It prints what it does at least every 20 seconds.
test:
	@tools/progress.sh 20 $(MAKE) --no-print-directory tested

.PHONY: tested compiled bubbles served sequential undetected vetted
tested: prepare
	@$(MAKE) --no-print-directory compiled
	@$(MAKE) --no-print-directory --old-file=vetted --jobs=3 --keep-going bubbles served lint checks sequential undetected

# Go commands that run at the same time compile each package that the cache lacks several times, also those that build
# a command for a test. So the tests begin when everything is compiled, with the race detector and, for go vet, without.
compiled: vetted
	$(if $(BUBBLES)$(SERVED),$(GO) list $(RACE) -export -test -f '{{.Export}}' $(BUBBLES) $(SERVED) >/dev/null)

vetted:
	$(GO) vet work

bubbles:
	$(if $(BUBBLES),ZKTEST_REAL=required $(GO) test $(RACE) -cpu 1 $(PARALLEL) -timeout 30m $(TESTFLAGS) $(call slowfirst,$(BUBBLES)))

served:
	$(if $(SERVED),ZKTEST_REAL=required $(GO) test $(RACE) $(PARALLEL) $(WAITING) -timeout 30m $(TESTFLAGS) $(call slowfirst,$(SERVED)))

# undetected runs without the race detector what needs other packages or tags than the rest.
undetected:
	$(if $(filter $(CONTROLLERS),$(ALL)),ZKTEST_REAL=required $(GO) test -timeout 30m $(TESTFLAGS) $(filter $(CONTROLLERS),$(ALL)))
	$(if $(filter $(STORES),$(SERVED)),$(GO) test -tags rethinkdb $(TESTFLAGS) $(STORES))

# The tag adds negative controls to the simulation: runs in which one safety check is disabled, which programs
# cannot do.
sequential:
	$(if $(SEQUENTIAL),$(GO) test -tags raftlog_controls -timeout 30m $(TESTFLAGS) $(call slowfirst,$(SEQUENTIAL)))
	$(if $(RANDOM),$(GO) test -cpu 1 -run '$(RANDOMTESTS)' -timeout 30m $(TESTFLAGS) $(RANDOM))

# checks tests the tools, which are a module of their own. Their tests read files of all modules. If such a
# file changes, the go command would still use the result of the last run, without -count 1.
checks:
	$(if $(filter work,$(PACKAGES)),cd tools && GOWORK=off $(GO) test -count 1 $(TESTFLAGS) ./...)

# unit runs the tests that need neither servers nor a C compiler: it installs nothing and
# needs no root. With -short, it makes one of eight random runs, explores the first 8000 states of each scenario
# of the contender, and does not run the simulation of the raft log: make test does all of this. Some packages wait
# for processes, so it tests one package more at a time than there are cores.
WITH_SERVERS = $(eval WITH_SERVERS := $(filter $(shell grep -rlE --include=*_test.go '/internal/testenv/(ensemble|dbserver)"' . | xargs -n 1 dirname | sort -u),$(ALL)))$(WITH_SERVERS)
UNITS        = $(eval UNITS := $(filter-out $(WITH_SERVERS) $(SIMULATION),$(ALL)))$(UNITS)

unit:
	@tools/progress.sh 20 $(MAKE) --no-print-directory --jobs=2 --keep-going units checks

.PHONY: units
units:
	$(GO) test -short -cpu 1 $(PARALLEL) -p $$((3 * $$(getconf _NPROCESSORS_ONLN))) $(TESTFLAGS) $(call slowfirst,$(UNITS))

# unit386 runs the same tests on a 32-bit platform.
unit386:
	GOARCH=386 CGO_ENABLED=0 $(MAKE) --no-print-directory unit TESTFLAGS='-shuffle=on $(TESTFLAGS)'

# stress runs the tests while two busy loops per core compete with them.
stress:
	@for i in $$(seq $$((2 * $$(nproc)))); do (while :; do :; done) & loops="$$loops $$!"; done; \
	trap 'kill $$loops' EXIT; trap 'exit 130' INT TERM; \
	$(MAKE) --no-print-directory test TESTFLAGS='-count=1 $(TESTFLAGS)'

# chaos runs elections, locks and queues in Go, Java (Curator) and Python (kazoo) on three servers, while
# servers and programs are killed, paused and partitioned. CHAOSFLAGS="-chaos 15m" sets the time.
CHAOSFLAGS = -chaos 15m

chaos: prepare
	ZKTEST_REAL=required $(GO) test -count 1 -v -timeout 0 ./integrationtest/interop -run '^TestChaos_HoldersDoNotOverlap$$' $(CHAOSFLAGS)

# operations tests elections while operators restart, restore, empty and pause the servers. make test
# runs a part of it.
operations: prepare
	ZKTEST_REAL=required $(GO) test -count 1 -v ./integrationtest/operations -args -operations.complete
	$(GO) test -count 1 -v ./adapters/changefeed/mongodb -run '^TestOperations_OnReplicaSetKeepOneLeader$$' -args -operations.complete

# kubernetes tests elections on Leases, managers of controller-runtime, a migration from client-go and the manifests
# of deploy/kubernetes on a real kube-apiserver, which it builds first: that takes five minutes on two idle
# cores. KUBERNETESFLAGS="-chaos 10m -runs 50" sets the time of the chaos and the number of leaders that are cut off.
KUBERNETESFLAGS = -chaos 2m

kubernetes: prepare
	apiserver=$$(sh integrationtest/kubernetes/install.sh) && \
	ZKTEST_REAL=required $(GO) test -count 1 -v -timeout 0 ./integrationtest/kubernetes -args -apiserver $$apiserver $(KUBERNETESFLAGS)

# seeds runs more of the simulations and random schedules of which make test runs some tens: RUNS of each.
RUNS = 1200

seeds:
	$(GO) test -count 1 -timeout 0 -tags raftlog_controls $(SIMULATION) -args -seeds $(RUNS)
	$(GO) test -count 1 -timeout 0 -cpu 1 -run Simulation ./adapters/changefeed -args -seeds $(RUNS)
	$(GO) test -count 1 -timeout 0 -cpu 1 -run Faults ./migration -args -seeds $(RUNS)
	$(GO) test -count 1 -timeout 0 -cpu 1 -run 'Linearizable|Schedules' ./internal/zk/queue ./recipes/cache ./recipes/lock ./recipes/queue ./recipes/shard -args -schedules $(RUNS)

# faults causes each fault, and each error code of the servers, at each request of an election and of
# every recipe, in fake time. make test runs a sample.
faults:
	$(GO) test -count 1 -cpu 1 -timeout 60m ./internal/testenv/eachrequest -each $(TESTFLAGS)

# fuzz runs each fuzz target for FUZZTIME. The minimization of inputs is limited, because it takes most of the
# time otherwise. FUZZ=./recipes/... selects directories, and
# FUZZFLAGS=-parallel=1 sets the number of workers. Inputs that fail are written to testdata.
FUZZTIME = 1m
FUZZ     = ./...

fuzz:
	@for dir in $$(grep -rlE --include=*_test.go '^func Fuzz' $(patsubst %/...,%,$(FUZZ)) | xargs -n 1 dirname | sort -u); do \
		for target in $$($(GO) test -list '^Fuzz' ./$$dir | grep '^Fuzz'); do \
			echo "$$dir $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $(FUZZFLAGS) ./$$dir || failed="$$failed $$dir/$$target"; \
		done; \
	done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# mutants breaks one rule of the library after another, in copies of its files, and requires
# that a test fails each time. MUTANTFLAGS="-run line" selects by name.
mutants:
	cd tools && GOWORK=off $(GO) run ./mutation $(MUTANTFLAGS)

# lint checks formatting, go vet, staticcheck, and the types on three other platforms, which are of three kinds: a
# 32-bit one, on which the tests are checked as well, one that is not Unix, and one that is Unix and not Linux.
# Compiling for a platform without a cache takes minutes. make cross compiles for all.
lint: vetted
	@unformatted=$$($(TOOL) gofumpt -l .); test -z "$$unformatted" || { echo "not formatted (make format):"; echo "$$unformatted"; exit 1; }
	$(GO) vet -tags rethinkdb ./adapters/changefeed/storeurl ./cmd/elector
	staticcheck=$$($(TOOL) -n staticcheck) && $$staticcheck work && \
	for module in bench tools; do \
		(cd $$module && export GOWORK=off && $(GO) vet ./... && $$staticcheck ./...) || exit 1; \
	done
	for platform in 'linux/386 -tests' windows/amd64 darwin/arm64; do \
		(cd tools && GOWORK=off $(GO) run ./repository types -platform $$platform $(filter-out $(CONTROLLERS),$(ALL))) || exit 1; \
	done

# cross compiles everything for platforms other than this one, and on 32-bit Linux the tests as well,
# some of which need Unix. Controllers are excluded. "go list -export" does that without linking, which takes most of the time.
PLATFORMS = linux/386 linux/arm windows/amd64 darwin/arm64 freebsd/amd64

cross:
	@for platform in $(PLATFORMS); do \
		echo "compile for $$platform"; \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0 $(GO) list $$(test $$platform != linux/386 || echo -test) -export -f '{{.Export}}' $(filter-out $(CONTROLLERS),$(ALL)) >/dev/null || exit 1; \
	done

# sizes builds elector with the store that a build tag adds, without each backend that a build tag
# excludes, and without all of them, and prints the sizes of the stripped binaries.
TAGS  = no_changefeed no_etcd no_kubernetes no_mongodb no_mysql no_nats no_postgres no_raftlog no_redis
empty =
comma = ,

sizes:
	@binary=$$(mktemp) && trap 'rm -f $$binary' EXIT && \
	for tags in "" rethinkdb $(TAGS) $(subst $(empty) $(empty),$(comma),$(TAGS)); do \
		CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -tags "$$tags" -o $$binary ./cmd/elector || exit 1; \
		wc -c <$$binary | awk -v tags="$$tags" '{printf "%5.1f MB  %s\n", $$1 / 1e6, tags}'; \
	done

# format formats the Go files.
format:
	$(TOOL) gofumpt -w .

# bench runs the benchmarks against other libraries: it compares this library with zk.Lock, kazoo
# and Curator on ZooKeeper, the raft log with other logs, and elections on different systems, and
# measures elections by changefeed on each store. BENCHFLAGS="-only 'locks per second'" selects rows
# of the first table, and BENCHFLAGS=-list prints the names of the rows. The benchmarks are separate
# modules, so that the library does not require the other libraries; their own tests run first. kazoo
# and Curator participate if Debian's python3-kazoo and libcurator-recipes-java are installed. If
# TMPDIR is set, servers keep their data on a disk, not in memory as in tests. If other programs use the
# processor, the first program exits, unless BENCHFLAGS contains -busy.
bench bench-short bench-record bench-curves bench-figures: export TMPDIR ?= /tmp
bench: prepare
	cd bench && GOWORK=off $(GO) test . ./internal/... ./raftlog
	cd bench && GOWORK=off $(GO) run . $(BENCHFLAGS)
	cd bench && GOWORK=off $(GO) run ./raftlog
	cd bench/systems && GOWORK=off $(GO) run .
	cd bench && GOWORK=off $(GO) test -run '^$$' -bench . -timeout 20m ./changefeed

# bench-short compares this library with its recorded speed, in about five minutes. It marks the rows that
# became worse by more than the noise of both runs.
bench-short: prepare
	cd bench && GOWORK=off $(GO) run . -short -compare recorded.txt $(BENCHFLAGS)

# bench-record writes the file with which bench-short compares. Commit it with a change of speed.
bench-record: prepare
	cd bench && GOWORK=off $(GO) run . -short -record recorded.txt $(BENCHFLAGS)

# bench-curves shows how costs grow, with up to 50,000 candidates and a million cached znodes. It also
# simulates the loss of a server with LOSSCANDIDATES candidates.
LOSSCANDIDATES = 100000

bench-curves: prepare
	for curve in candidates elections contenders cache items consumers; do \
		(cd bench && GOWORK=off $(GO) run . -curve $$curve -patience 20m -limit 3h $(BENCHFLAGS)) || exit 1; \
	done
	cd bench && GOWORK=off $(GO) test -count 1 -run TestServerLoss_KeepsLeadersOfOpenSessions -v -timeout 2h . -args -loss.candidates $(LOSSCANDIDATES)

# bench-figures writes all figures to the directory FIGURES, in about six hours. These are all rows in 250
# rounds, without and with a network delay, and the curves.
FIGURES = /tmp/figures

bench-figures: prepare
	mkdir -p "$(FIGURES)"
	cd bench && GOWORK=off $(GO) run . -rounds 250 -limit 6h -json "$(FIGURES)/local.json" $(BENCHFLAGS) >"$(FIGURES)/local.txt"
	cd bench && GOWORK=off $(GO) run . -rounds 250 -limit 6h -delay 500us -json "$(FIGURES)/delay.json" $(BENCHFLAGS) >"$(FIGURES)/delay.txt"
	$(MAKE) --no-print-directory bench-curves >"$(FIGURES)/curves.txt"

# tidy runs go mod tidy in every module of the workspace.
tidy:
	cd tools && GOWORK=off $(GO) run ./repository tidy

# modules builds every module as its users get it, counts what it requires of them, and builds older
# modules and a store of another author with the core module. It needs a module proxy.
modules:
	cd tools && GOWORK=off $(GO) run ./repository check

# rehearsal makes the next release in a clone in REHEARSAL, which must be empty, installs and runs it as its
# users will, and prints the command that publishes it. REHEARSALFLAGS=quick does less. It needs a module
# proxy, and tests an image if Docker answers.
REHEARSAL = $(CURDIR)/../leaderelection-rehearsal

rehearsal:
	tools/progress.sh 20 tools/rehearse.sh "$(REHEARSAL)" $(REHEARSALFLAGS)

# prepare installs the servers and clients that tests need and this machine lacks, as root
# on Debian. It prints the list of packages first.
prepare:
	sh integrationtest/install.sh
