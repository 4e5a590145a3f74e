package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
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
	if t == shortTimeouts {
		c.HeartbeatTimeout, c.ElectionTimeout = 200*time.Millisecond, 200*time.Millisecond
		c.LeaderLeaseTimeout, c.CommitTimeout = 100*time.Millisecond, 20*time.Millisecond
	}
	return c
}

// hashicorpCluster contains the parts of its nodes. A node that failed to start is nil.
type hashicorpCluster struct {
	nodes  [nodes]*raft.Raft
	counts [nodes]counter
	closes []func() error
}

func (h hashicorp) start(_ context.Context, dir string, t timeouts) (cluster, error) {
	c := new(hashicorpCluster)
	if err := c.startNodes(h, dir, t); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *hashicorpCluster) startNodes(h hashicorp, dir string, t timeouts) error {
	var members raft.Configuration
	var transports [nodes]*raft.NetworkTransport
	for i := range nodes {
		transport, err := raft.NewTCPTransport("127.0.0.1:0", nil, nodes, 10*time.Second, io.Discard)
		if err != nil {
			return fmt.Errorf("listen for node %d: %w", i, err)
		}
		transports[i] = transport
		c.closes = append(c.closes, func() error {
			transport.CloseStreams() // Close of the transport does not close its streams
			return transport.Close()
		})
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(fmt.Sprint(i)), Address: transport.LocalAddr()})
	}
	for i, transport := range transports {
		if err := c.startNode(i, h, filepath.Join(dir, fmt.Sprint(i)), t, transport, members); err != nil {
			return fmt.Errorf("start node %d: %w", i, err)
		}
	}
	return nil
}

func (c *hashicorpCluster) startNode(i int, h hashicorp, dir string, t timeouts, transport raft.Transport, members raft.Configuration) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	meta := new(metadb.BoltMetaDB) // created here, because raft-wal does not close a store that it creates itself
	log, err := wal.Open(dir, wal.WithLogger(hclog.NewNullLogger()), wal.WithMetaStore(meta))
	if err != nil {
		return err
	}
	c.closes = append(c.closes, log.Close, meta.Close)
	var entries raft.LogStore = log
	if h.tuned {
		if entries, err = raft.NewLogCache(1024, log); err != nil {
			return err
		}
	}
	config, snapshots := h.config(i, t), raft.NewDiscardSnapshotStore()
	if err := raft.BootstrapCluster(config, entries, log, snapshots, transport, members); err != nil {
		return err
	}
	c.nodes[i], err = raft.NewRaft(config, &c.counts[i], entries, log, snapshots, transport)
	return err
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
	for i, node := range c.nodes {
		if node != nil {
			err = errors.Join(err, c.halt(i))
		}
	}
	for _, closePart := range c.closes {
		err = errors.Join(err, closePart())
	}
	return err
}

// counter is a state machine that counts the updates.
type counter struct{ n atomic.Uint64 }

func (c *counter) Apply(*raft.Log) any { return c.n.Add(1) }

// ApplyBatch implements raft.BatchingFSM.
func (c *counter) ApplyBatch(logs []*raft.Log) []any {
	results := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand {
			results[i] = c.Apply(l)
		}
	}
	return results
}

func (c *counter) Snapshot() (raft.FSMSnapshot, error) { return c, nil }
func (c *counter) Restore(from io.ReadCloser) error    { return from.Close() }
func (c *counter) Persist(to raft.SnapshotSink) error  { return to.Close() }
func (c *counter) Release()                            {}
