package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
)

// hashicorp is hashicorp/raft over TCP, with raft-wal for the log and the votes.
type hashicorp struct{ tuned bool }

const hashicorpName = "hashicorp/raft + raft-wal"

func (hashicorp) name() string { return hashicorpName }

func (h hashicorp) settings() string {
	if h.tuned {
		return "MaxAppendEntries 512, BatchApplyCh, LogCache 1024"
	}
	return "defaults"
}

func (h hashicorp) config(node int, t timeouts) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(fmt.Sprint(node))
	c.Logger = hclog.NewNullLogger()
	if h.tuned {
		c.MaxAppendEntries, c.BatchApplyCh = 512, true
	}
	c.SnapshotThreshold = math.MaxUint64 // only the benchmark requests snapshots
	if t == shortTimeouts {
		c.HeartbeatTimeout, c.ElectionTimeout = 200*time.Millisecond, 200*time.Millisecond
		c.LeaderLeaseTimeout, c.CommitTimeout = 100*time.Millisecond, 20*time.Millisecond
	}
	return c
}

// hashicorpCluster is a cluster of hashicorp/raft. A node that failed to start is nil.
type hashicorpCluster struct {
	hashicorp
	dir      string
	timeouts timeouts
	members  raft.Configuration
	nodes    [nodes]*raft.Raft
	counts   [nodes]hashicorpCounter
	closes   [nodes][]func() error
}

func (h hashicorp) start(_ context.Context, dir string, t timeouts) (cluster, error) {
	c := &hashicorpCluster{hashicorp: h, dir: dir, timeouts: t}
	if err := c.startNodes(); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *hashicorpCluster) startNodes() error {
	var transports [nodes]*raft.NetworkTransport
	for i := range nodes {
		transport, closeTransport, err := newTransport("127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listen for node %d: %w", i, err)
		}
		transports[i] = transport
		c.closes[i] = append(c.closes[i], closeTransport)
		c.members.Servers = append(c.members.Servers, raft.Server{ID: raft.ServerID(fmt.Sprint(i)), Address: transport.LocalAddr()})
	}
	for i, transport := range transports {
		if err := c.startMember(i, transport, true); err != nil {
			return err
		}
	}
	return nil
}

func newTransport(addr string) (*raft.NetworkTransport, func() error, error) {
	transport, err := raft.NewTCPTransport(addr, nil, nodes, 10*time.Second, io.Discard)
	if err != nil {
		return nil, nil, err
	}
	return transport, func() error {
		transport.CloseStreams() // transport.Close does not close the streams
		return transport.Close()
	}, nil
}

// startMember starts a member of the cluster. If found is true, it first creates the cluster in the member's
// directory.
func (c *hashicorpCluster) startMember(i int, transport raft.Transport, found bool) error {
	node, closes, err := c.startNode(i, &c.counts[i], transport, found)
	c.nodes[i], c.closes[i] = node, append(c.closes[i], closes...)
	if err != nil {
		return fmt.Errorf("start node %d: %w", i, err)
	}
	return nil
}

func (c *hashicorpCluster) startNode(i int, machine *hashicorpCounter, transport raft.Transport, found bool) (_ *raft.Raft, closes []func() error, err error) {
	dir := filepath.Join(c.dir, fmt.Sprint(i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	meta := new(metadb.BoltMetaDB) // created here, because raft-wal does not close a store that it creates itself
	log, err := wal.Open(dir, wal.WithLogger(hclog.NewNullLogger()), wal.WithMetaStore(meta))
	if err != nil {
		return nil, nil, err
	}
	closes = []func() error{log.Close, meta.Close}
	var entries raft.LogStore = log
	if c.tuned {
		if entries, err = raft.NewLogCache(1024, log); err != nil {
			return nil, closes, err
		}
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, 1, hclog.NewNullLogger())
	if err != nil {
		return nil, closes, err
	}
	config := c.config(i, c.timeouts)
	if found {
		if err := raft.BootstrapCluster(config, entries, log, snapshots, transport, c.members); err != nil {
			return nil, closes, err
		}
	}
	node, err := raft.NewRaft(config, machine, entries, log, snapshots, transport)
	return node, closes, err
}

func (c *hashicorpCluster) isLeader(node int) bool { return c.nodes[node].State() == raft.Leader }

// propose may return after ctx is done: the method Apply of the library returns at the latest when a
// leader that cannot commit loses its lease.
func (c *hashicorpCluster) propose(ctx context.Context, node int, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.nodes[node].Apply(data, 0).Error()
}

func (c *hashicorpCluster) applied(node int) uint64 { return c.counts[node].n.Load() }

// halt stops a node with Shutdown, which does not transfer leadership.
func (c *hashicorpCluster) halt(node int) error { return c.nodes[node].Shutdown().Error() }

func (c *hashicorpCluster) stop() error {
	var err error
	for i := range nodes {
		err = errors.Join(err, c.stopNode(i))
	}
	return err
}

func (c *hashicorpCluster) stopNode(i int) error {
	var err error
	if c.nodes[i] != nil {
		err = c.halt(i)
	}
	for _, closePart := range c.closes[i] {
		err = errors.Join(err, closePart())
	}
	c.closes[i] = nil
	return err
}

func (c *hashicorpCluster) growState(_ context.Context, node int, size int64) error {
	c.counts[node].size.Add(uint64(size))
	return nil
}

func (c *hashicorpCluster) snapshot(_ context.Context, node int) error {
	return c.nodes[node].Snapshot().Error()
}

func (c *hashicorpCluster) restart(_ context.Context, node int) error {
	if err := c.stopNode(node); err != nil {
		return err
	}
	transport, closeTransport, err := newTransport(string(c.members.Servers[node].Address))
	if err != nil {
		return err
	}
	c.closes[node] = append(c.closes[node], closeTransport)
	c.counts[node].n.Store(0)
	return c.startMember(node, transport, false)
}

func (c *hashicorpCluster) join(context.Context) (*learner, error) {
	transport, closeTransport, err := newTransport("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	machine := new(hashicorpCounter)
	node, closes, err := c.startNode(nodes, machine, transport, false)
	l := &learner{machine.n.Load, func() (err error) {
		if node != nil {
			err = node.Shutdown().Error()
		}
		for _, closePart := range append(closes, closeTransport) {
			err = errors.Join(err, closePart())
		}
		return err
	}}
	if err != nil {
		return l, err
	}
	leader, _ := findLeader(c, -1)
	return l, c.nodes[leader].AddNonvoter(raft.ServerID(fmt.Sprint(nodes)), transport.LocalAddr(), 0, patience).Error()
}

// read confirms the leadership by a round of heartbeats, which concurrent reads share.
func (c *hashicorpCluster) read(_ context.Context, node int) error {
	r := c.nodes[node]
	if r.State() != raft.Leader {
		return fmt.Errorf("%w: only the leader can read", errors.ErrUnsupported)
	}
	index := r.CommitIndex()
	if err := r.VerifyLeader().Error(); err != nil || r.AppliedIndex() >= index {
		return err
	}
	return r.Barrier(0).Error()
}

func (c *hashicorpCluster) compact(ctx context.Context) error {
	return forAllNodes(func(i int) error { return c.snapshot(ctx, i) })
}

// hashicorpCounter is a state machine that counts the updates.
type hashicorpCounter struct{ countingState }

func (c *hashicorpCounter) Apply(*raft.Log) any { return c.n.Add(1) }

// ApplyBatch implements raft.BatchingFSM.
func (c *hashicorpCounter) ApplyBatch(logs []*raft.Log) []any {
	results := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand {
			results[i] = c.Apply(l)
		}
	}
	return results
}

func (c *hashicorpCounter) Snapshot() (raft.FSMSnapshot, error) {
	return persistedSnapshot{c.captureState()}, nil
}

func (c *hashicorpCounter) Restore(from io.ReadCloser) error {
	return errors.Join(c.restore(from), from.Close())
}

// persistedSnapshot is the snapshot of a hashicorpCounter.
type persistedSnapshot struct{ capturedState }

func (p persistedSnapshot) Persist(to raft.SnapshotSink) error {
	if _, err := p.WriteTo(to); err != nil {
		return errors.Join(err, to.Cancel())
	}
	return to.Close()
}

func (persistedSnapshot) Release() {}
