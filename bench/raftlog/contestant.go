package main

import "context"

// nodes is the number of nodes of a cluster.
const nodes = 3

// updateSize is the size of the data of an update in bytes.
const updateSize = 256

// timeouts selects the election timeout of a cluster.
type timeouts int

const (
	defaultTimeouts timeouts = iota // those of the library
	shortTimeouts                   // an election timeout of 200 ms
)

// contestant is a replicated log with certain settings.
type contestant interface {
	// name returns the name of the library.
	name() string
	// settings describes how the settings differ from the library's defaults.
	settings() string
	// start creates a cluster of new nodes with directories below dir, which is empty, and returns
	// when all of them run. The cluster may not have elected a leader yet.
	start(ctx context.Context, dir string, t timeouts) (cluster, error)
}

// cluster is a running cluster. Its methods may be called from several goroutines, except stop,
// which must be the last call.
type cluster interface {
	// isLeader reports whether the node considers itself the leader.
	isLeader(node int) bool
	// propose returns when data is committed and applied at the node. The caller must not modify
	// data afterwards. After an error, the update may or may not be committed later.
	propose(ctx context.Context, node int, data []byte) error
	// applied returns the number of updates that the node's state machine has applied.
	applied(node int) uint64
	// halt stops a node without a transfer of leadership. The node must neither send nor receive
	// messages soon after the call has started; the call may take longer.
	halt(node int) error
	// stop stops all nodes and releases their resources.
	stop() error
}

// allContestants returns the logs to compare. The fail-over of each library is measured with the
// first of its settings.
func allContestants() []contestant {
	return []contestant{
		library{},
		library{secret: true},
		hashicorp{},
		hashicorp{tuned: true},
		etcd{},
		etcdRaft{},
	}
}
