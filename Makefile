GO      ?= go
TOOL     = $(GO) tool -modfile=tools/go.mod
PACKAGES = ./...

.PHONY: all demo test unit lint format bench prepare

all: test

# demo shows three candidates, the loss of leaders and the succession on servers
# inside its own process: it needs Go and nothing else.
# DEMOFLAGS="--zk host:port,..." uses a ZooKeeper of yours.
demo:
	$(GO) run ./cmd/elector demo $(DEMOFLAGS)

# The client library races with itself when it reconnects while requests are
# queued (its pull request 35, open since 2020), which is not for these tests to
# find: that one package is compiled without instrumentation.
RACE = -race -gcflags=github.com/go-zookeeper/zk=-race=false

# In a bubble of testing/synctest, a timer of no duration is run by the goroutine that
# makes it, and the race detector crashes when two do so at once (Go 1.26.8: the
# timers of a bubble share one context of the detector's). So tests in bubbles have
# one processor each. The detector finds races by what is ordered before what, for
# which one processor is enough.
ALL     = $(patsubst $(shell $(GO) list -m)%,.%,$(shell $(GO) list $(PACKAGES)))
BUBBLES = $(filter $(shell grep -rlE --include=*_test.go '"testing/synctest"|electiontest.FakeTime' . | xargs -n 1 dirname | sort -u),$(ALL))

# The simulation of the raft log has one goroutine, and nothing for the race detector, with
# which it is thirteen times as slow. -args -seeds 10000 plays more.
SIMULATION = ./adapters/raftlog/internal/simulation

SERVED     = $(filter-out $(BUBBLES) $(SIMULATION),$(ALL))

# test is everything: lint, unit and integration tests, with the race detector.
# ZKTEST_REAL makes tests fail, not skip, without the servers that they compare with or
# run on.
# The tests on servers wait most of the time, which is enough for the simulation.
test: prepare lint
	$(if $(BUBBLES),$(GO) test $(RACE) -cpu 1 -timeout 15m $(TESTFLAGS) $(BUBBLES))
	@$(MAKE) --no-print-directory --jobs=2 --keep-going served simulated

.PHONY: served simulated
served:
	$(if $(SERVED),ZKTEST_REAL=required $(GO) test $(RACE) -timeout 15m $(TESTFLAGS) $(SERVED))

simulated:
	$(if $(filter $(SIMULATION),$(ALL)),nice $(GO) test -timeout 15m $(TESTFLAGS) $(SIMULATION))

# unit needs no ZooKeeper.
unit:
	$(GO) test $(RACE) -cpu 1 $(BUBBLES)

lint:
	@unformatted=$$($(TOOL) gofumpt -l .); test -z "$$unformatted" || { echo "not formatted (make format):"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	cd bench && $(GO) vet ./... && $(GO) tool -modfile=../tools/go.mod staticcheck ./...

format:
	$(TOOL) gofumpt -w .

# bench compares with other libraries, in a module of its own, so that the library
# does not depend on what it is compared with. kazoo and Curator take part where
# Debian's python3-kazoo and libcurator-recipes-java are installed. The elections'
# own requests and round trips: $(GO) test -run '^$' -bench .
# After that it prints what elections by changefeed take on each store, and compares the raft
# log with others.
# Servers keep their data on a disk then, not in memory as in tests.
bench: export TMPDIR ?= /tmp
bench: prepare
	cd bench && $(GO) run . $(BENCHFLAGS)
	cd bench && $(GO) run ./raftlog
	$(GO) test -run '^$$' -bench . -timeout 20m ./adapters/changefeed/internal/figures

# prepare installs what a fresh Debian machine lacks: ZooKeeper and Java, or what
# its image is built from, etcd, and the clients of other languages that take part.
prepare:
	sh integrationtest/install.sh
