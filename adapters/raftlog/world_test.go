package raftlog_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failer is the part of testing.TB that a world needs.
type failer interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// world is a cluster in this process, on a network and on disks in memory, for bubbles of
// testing/synctest.
type world struct {
	t     failer
	net   *memnet.Network
	peers []api.Peer
	disks map[string]*crashdisk.Disk
	nodes map[string]*raftlog.Node
	sms   map[string]*register
	mu    sync.Mutex
}

func newWorld(t failer, n int) *world {
	w := &world{
		t: t, net: memnet.New(), disks: map[string]*crashdisk.Disk{}, nodes: map[string]*raftlog.Node{}, sms: map[string]*register{},
	}
	for i := range n {
		w.peers = append(w.peers, peer(i))
	}
	t.Cleanup(func() {
		for _, node := range w.all() {
			node.Close()
		}
	})
	return w
}

func peer(i int) api.Peer {
	return api.Peer{ID: fmt.Sprint("p", i), Addr: fmt.Sprintf("host%d:1", i)}
}

func (w *world) all() []*raftlog.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*raftlog.Node
	for _, n := range w.nodes {
		all = append(all, n)
	}
	return all
}

// startAll starts the founding peers.
func (w *world) startAll(opts ...func(*raftlog.Config)) []*raftlog.Node {
	var all []*raftlog.Node
	for _, p := range w.peers {
		all = append(all, w.start(p, opts...))
	}
	return all
}

// start starts a peer, with what its disk has.
func (w *world) start(p api.Peer, opts ...func(*raftlog.Config)) *raftlog.Node {
	w.t.Helper()
	n, err := w.open(p, opts...)
	if err != nil {
		w.t.Fatalf("open %s: %v", p.ID, err)
	}
	return n
}

func (w *world) open(p api.Peer, opts ...func(*raftlog.Config)) (*raftlog.Node, error) {
	listener, err := w.net.Listen(p.Addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	if w.disks[p.ID] == nil {
		w.disks[p.ID] = crashdisk.New(rand.New(rand.NewPCG(uint64(len(w.disks)), 1)))
	}
	w.sms[p.ID] = &register{}
	cfg := raftlog.Config{
		Cluster: "test", ID: p.ID, Addr: p.Addr, Peers: w.peers, Insecure: true, StateMachine: w.sms[p.ID],
		ElectionTimeout: 200 * time.Millisecond, Heartbeat: 50 * time.Millisecond,
		Listener: listener,
		Dial:     func(ctx context.Context, addr string) (net.Conn, error) { return w.net.Dial(ctx, p.Addr, addr) },
	}
	d := w.disks[p.ID]
	w.mu.Unlock()
	cfg = cfg.OnDisk(d).InFiles(64 << 10)
	for _, o := range opts {
		o(&cfg)
	}
	n, err := raftlog.Open(cfg)
	if err == nil {
		w.mu.Lock()
		w.nodes[p.ID] = n
		w.mu.Unlock()
	}
	return n, err
}

// isolate cuts a peer off from all others.
func (w *world) isolate(p api.Peer) (heal func()) {
	var others []string
	for i := range 10 {
		if q := peer(i); q != p {
			others = append(others, q.Addr)
		}
	}
	for _, a := range others {
		w.net.CutBoth(p.Addr, a)
	}
	return func() {
		for _, a := range others {
			w.net.HealBoth(p.Addr, a)
		}
	}
}

// register is a state machine in memory: how often each update was applied, and in what order.
type register struct {
	mu      sync.Mutex
	applied uint64
	updates []string
	write   func(io.Writer) error // before what a snapshot writes
	err     error                 // of Apply
}

func (r *register) LastApplied() (uint64, error) { return 0, nil }

func (r *register) Apply(entries []api.Entry, through uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	for _, e := range entries {
		if e.Index <= r.applied {
			return fmt.Errorf("entry %d after %d", e.Index, r.applied)
		}
		r.updates = append(r.updates, string(e.Data))
	}
	r.applied = through
	return nil
}

func (r *register) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.updates...)
}

func (r *register) Snapshot() (io.WriterTo, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(r.all())
	r.mu.Lock()
	defer r.mu.Unlock()
	return &written{&b, r.write}, err
}

// written is a register's snapshot.
type written struct {
	*bytes.Buffer
	before func(io.Writer) error
}

func (s *written) WriteTo(to io.Writer) (int64, error) {
	if s.before != nil {
		if err := s.before(to); err != nil {
			return 0, err
		}
	}
	return s.Buffer.WriteTo(to)
}

// writing has something done before a snapshot is written.
func (r *register) writing(f func(io.Writer) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write = f
}

// fails has the next Apply fail.
func (r *register) fails(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *register) Restore(index uint64, from io.Reader) error {
	var updates []string
	if err := gob.NewDecoder(from).Decode(&updates); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updates, r.applied = updates, index
	return nil
}
