package main

import "context"

// nodes is how many nodes a cluster has.
const nodes = 3

// updateSize is the size of an update's data in bytes.
const updateSize = 256

// timeouts tells a contestant how soon its nodes elect another leader.
type timeouts int

const (
	usual timeouts = iota // the library's defaults
	quick                 // an election timeout of 200 ms
)

// contestant is a replicated log, in one way of setting it.
type contestant interface {
	// name is the library's.
	name() string
	// settings says what differs from the library's defaults.
	settings() string
	// start makes a cluster of new nodes with directories below dir, which is empty, and
	// returns when all of them run. There need not be a leader yet.
	start(ctx context.Context, dir string, t timeouts) (cluster, error)
}

// cluster is a running cluster. Its methods may be called by several goroutines, but for
// stop, which is the last.
type cluster interface {
	// leads tells whether a node holds itself to be the leader.
	leads(node int) bool
	// propose returns when data are committed and applied at the node. The data are not
	// modified afterwards. An error leaves open whether they will be.
	propose(ctx context.Context, node int, data []byte) error
	// applied is how many updates the node's state machine has seen.
	applied(node int) uint64
	// halt ends a node without handing over to another, and may take its time: the node
	// must be dumb and deaf soon after the call has begun.
	halt(node int) error
	// stop ends all nodes and releases what they have.
	stop() error
}

// peers are the libraries to compare with; the first settings of each are those of the
// fail-over.
func peers() []contestant {
	return []contestant{
		library{},
		library{secret: true},
		hashicorp{},
		hashicorp{tuned: true},
		etcd{},
	}
}
