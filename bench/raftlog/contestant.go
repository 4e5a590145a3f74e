package main

import (
	"context"
	"encoding/binary"
	"io"
	"sync/atomic"
	"time"
)

// nodes is the number of nodes of a cluster.
const nodes = 3

// updateSize is the size of the data of an update in bytes.
const updateSize = 256

// shortWindow is the deduplication window of adapters/raftlog in the measurements of operations. It is short,
// because a compaction removes only entries whose request IDs have left the window.
const shortWindow = time.Minute

// timeouts selects the election timeout of a cluster.
type timeouts int

const (
	defaultTimeouts timeouts = iota // the default timeouts of each library
	shortTimeouts                   // timeouts with an election timeout of 200 ms
)

// contestant is a replicated log with certain settings.
type contestant interface {
	// name returns the name of the library.
	name() string
	// settings describes how the settings differ from the library's defaults.
	settings() string
	// start creates a cluster of new nodes with directories below dir, which is empty, and returns when
	// all nodes run. The cluster may not have elected a leader yet.
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
		raftlogLibrary{},
		raftlogLibrary{secret: true},
		hashicorp{},
		hashicorp{tuned: true},
		etcdLog{},
		etcdRaft{},
	}
}

// operableContestants returns the logs whose clusters implement operableCluster.
func operableContestants() []contestant {
	return []contestant{raftlogLibrary{window: shortWindow}, hashicorp{tuned: true}, etcdLog{}}
}

// countingState is the state of the state machines of the benchmark: the number of updates. A snapshot of this
// state also contains size bytes, which make the snapshot larger.
type countingState struct{ n, size atomic.Uint64 }

// captureState returns a copy of the current state.
func (c *countingState) captureState() capturedState { return capturedState{c.n.Load(), c.size.Load()} }

// capturedState is a countingState at one moment.
type capturedState struct{ n, size uint64 }

// WriteTo implements io.WriterTo.
func (c capturedState) WriteTo(w io.Writer) (written int64, err error) {
	n, err := w.Write(binary.BigEndian.AppendUint64(nil, c.n))
	written = int64(n)
	data := newData(1 << 20)
	for left := c.size; left > 0 && err == nil; left -= min(left, uint64(len(data))) {
		n, err = w.Write(data[:min(left, uint64(len(data)))])
		written += int64(n)
	}
	return written, err
}

// restore replaces the state by a captured state that it reads from r, or by the empty state if r has no data.
func (c *countingState) restore(r io.Reader) error {
	var n [8]byte
	_, err := io.ReadFull(r, n[:])
	if err != nil && err != io.EOF {
		return err
	}
	size, err := io.Copy(io.Discard, r)
	c.n.Store(binary.BigEndian.Uint64(n[:]))
	c.size.Store(uint64(size))
	return err
}
