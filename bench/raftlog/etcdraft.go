package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protodelim"
)

// etcdRaft is etcd's raft on etcd's write-ahead log, with a connection between each two nodes and a state
// machine that counts. It is a bound for servers that are built on both. The report does not compare other
// libraries with it (isPeer), because it lacks snapshots, membership changes and authentication, and detects
// no duplicates.
type etcdRaft struct{}

const etcdRaftName = "bound: etcd's raft on its WAL"

func (etcdRaft) name() string     { return etcdRaftName }
func (etcdRaft) settings() string { return "limits of etcd" }

type etcdRaftCluster struct{ nodes [nodes]*etcdRaftNode }

type etcdRaftNode struct {
	raft.Node
	number  int
	storage *raft.MemoryStorage
	wal     *wal.WAL
	conns   []net.Conn
	queues  [nodes]chan *raftpb.Message
	leads   atomic.Bool
	count   atomic.Uint64
	stopped chan struct{}
	halted  sync.Once
	running sync.WaitGroup

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan struct{} // the callers that wait until an update is applied, by the number of the update
}

func (etcdRaft) start(_ context.Context, dir string, t timeouts) (cluster, error) {
	c := new(etcdRaftCluster)
	tick := 100 * time.Millisecond
	if t == shortTimeouts {
		tick = 20 * time.Millisecond
	}
	for i := range c.nodes {
		w, err := wal.Create(zap.NewNop(), filepath.Join(dir, fmt.Sprint(i)), nil)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		n := &etcdRaftNode{
			number: i, storage: raft.NewMemoryStorage(), wal: w, stopped: make(chan struct{}), waiting: map[uint64]chan struct{}{},
		}
		if err := n.storage.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}, Index: new(uint64(1)), Term: new(uint64(1)),
		}}); err != nil {
			return nil, errors.Join(err, w.Close(), c.stop())
		}
		n.Node = raft.RestartNode(&raft.Config{
			ID: uint64(i) + 1, ElectionTick: 10, HeartbeatTick: 1, Storage: n.storage, CheckQuorum: true, PreVote: true,
			MaxSizePerMsg: 512 << 10, MaxInflightMsgs: 512, Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
		})
		c.nodes[i] = n
	}
	for i, a := range c.nodes {
		for _, b := range c.nodes[:i] {
			near, far, err := connect()
			if err != nil {
				return nil, errors.Join(err, c.stop())
			}
			a.connect(b.number, near)
			b.connect(a.number, far)
		}
	}
	for _, n := range c.nodes {
		n.running.Go(func() { n.run(tick) })
	}
	return c, nil
}

// connect exchanges messages with another node over conn.
func (n *etcdRaftNode) connect(to int, conn net.Conn) {
	queue := make(chan *raftpb.Message, 4096)
	n.queues[to], n.conns = queue, append(n.conns, conn)
	n.running.Go(func() {
		w := bufio.NewWriterSize(conn, 64<<10)
		for {
			select {
			case m := <-queue:
				_, err := protodelim.MarshalTo(w, m)
				if err == nil && len(queue) == 0 {
					err = w.Flush()
				}
				if err != nil {
					return // the connection has failed, because the other node was halted
				}
			case <-n.stopped:
				return
			}
		}
	})
	n.running.Go(func() {
		r := bufio.NewReaderSize(conn, 64<<10)
		for {
			m := new(raftpb.Message)
			if protodelim.UnmarshalFrom(r, m) != nil || n.Step(context.Background(), m) != nil {
				return
			}
		}
	})
}

func (n *etcdRaftNode) run(tick time.Duration) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			n.Tick()
		case r := <-n.Ready():
			if r.SoftState != nil {
				n.leads.Store(r.RaftState == raft.StateLeader)
			}
			leads := n.leads.Load()
			if leads { // as in etcd, a leader sends entries while it writes them
				n.send(r.Messages)
			}
			if n.wal.Save(r.HardState, r.Entries) != nil || n.storage.Append(r.Entries) != nil {
				n.leads.Store(false)
				return // stop the node after an error of the disk; the benchmark then fails
			}
			if !leads {
				n.send(r.Messages)
			}
			n.apply(r.CommittedEntries)
			n.Advance()
		case <-n.stopped:
			return
		}
	}
}

// send adds messages to the queues of their receivers. It drops a message if the queue is full, because Raft
// repeats it.
func (n *etcdRaftNode) send(messages []*raftpb.Message) {
	for _, m := range messages {
		select {
		case n.queues[m.GetTo()-1] <- m:
		default:
		}
	}
}

func (n *etcdRaftNode) apply(entries []*raftpb.Entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range entries {
		if len(e.GetData()) == 0 {
			continue // skip the empty entry that each new leader writes
		}
		n.count.Add(1)
		number := binary.BigEndian.Uint64(e.GetData())
		if done := n.waiting[number]; done != nil {
			close(done)
			delete(n.waiting, number)
		}
	}
}

func (c *etcdRaftCluster) isLeader(node int) bool { return c.nodes[node].leads.Load() }

func (c *etcdRaftCluster) propose(ctx context.Context, node int, data []byte) error {
	n := c.nodes[node]
	done := make(chan struct{})
	n.mu.Lock()
	n.next++
	number := n.next*nodes + uint64(n.number)
	n.waiting[number] = done
	n.mu.Unlock()
	err := n.Propose(ctx, append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(data)), number), data...))
	if err == nil {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-n.stopped:
			err = raft.ErrStopped
		}
	}
	n.mu.Lock()
	delete(n.waiting, number)
	n.mu.Unlock()
	return err
}

func (c *etcdRaftCluster) applied(node int) uint64 { return c.nodes[node].count.Load() }

func (c *etcdRaftCluster) halt(node int) (err error) {
	n := c.nodes[node]
	n.halted.Do(func() {
		n.leads.Store(false)
		close(n.stopped)
		for _, conn := range n.conns {
			conn.Close()
		}
		n.Stop()
		n.running.Wait()
		err = n.wal.Close()
	})
	return err
}

func (c *etcdRaftCluster) stop() error {
	return forAllNodes(func(i int) error {
		if c.nodes[i] == nil {
			return nil
		}
		return c.halt(i)
	})
}
