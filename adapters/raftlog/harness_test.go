package raftlog_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testingT is the part of testing.TB that a harness needs.
type testingT interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// harness is a cluster in this process, with a network and disks in memory, for a bubble of
// testing/synctest.
type harness struct {
	t        testingT
	net      *testenv.Network
	peers    []api.Peer
	disks    map[string]*testenv.Disk
	nodes    map[string]*raftlog.Node
	machines map[string]*recorder
	logs     map[string]*bytes.Buffer // the messages that all processes of each peer have logged, by the ID of the peer
	mu       sync.Mutex
}

func newHarness(t testingT, n int) *harness {
	h := &harness{
		t: t, net: testenv.NewNetwork(), disks: map[string]*testenv.Disk{}, nodes: map[string]*raftlog.Node{}, machines: map[string]*recorder{},
		logs: map[string]*bytes.Buffer{},
	}
	for i := range n {
		h.peers = append(h.peers, peerInfo(i))
	}
	t.Cleanup(func() {
		for _, node := range h.runningNodes() {
			node.Close()
		}
	})
	return h
}

// peerInfo returns the ID and the first address of peer i. A new harness of n peers contains peers 0 to n-1.
func peerInfo(i int) api.Peer {
	return api.Peer{ID: fmt.Sprint("p", i), Addr: fmt.Sprintf("host%d:1", i)}
}

func (h *harness) runningNodes() []*raftlog.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*raftlog.Node
	for _, n := range h.nodes {
		all = append(all, n)
	}
	return all
}

// startAll starts all peers of the harness.
func (h *harness) startAll(opts ...func(*raftlog.Config)) []*raftlog.Node {
	var all []*raftlog.Node
	for _, p := range h.peers {
		all = append(all, h.startPeer(p, opts...))
	}
	return all
}

// startPeer opens a peer with the data on its disk.
func (h *harness) startPeer(p api.Peer, opts ...func(*raftlog.Config)) *raftlog.Node {
	h.t.Helper()
	n, err := h.openPeer(p, opts...)
	if err != nil {
		h.t.Fatalf("open %s: %v", p.ID, err)
	}
	return n
}

func (h *harness) openPeer(p api.Peer, opts ...func(*raftlog.Config)) (*raftlog.Node, error) {
	listener, err := h.net.Listen(p.Addr)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	if h.disks[p.ID] == nil {
		h.disks[p.ID] = testenv.NewDisk(uint64(len(h.disks)))
	}
	if h.logs[p.ID] == nil {
		h.logs[p.ID] = &bytes.Buffer{}
	}
	h.machines[p.ID] = &recorder{}
	cfg := raftlog.Config{
		Cluster: "test", ID: p.ID, Addr: p.Addr, Peers: h.peers, Insecure: true, StateMachine: h.machines[p.ID],
		ElectionTimeout: 200 * time.Millisecond, Heartbeat: 50 * time.Millisecond,
		Listener: listener, Logger: slog.New(slog.NewTextHandler(lockedWriter{&h.mu, h.logs[p.ID]}, nil)),
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return h.net.Dial(ctx, p.Addr, addr) },
	}
	d := h.disks[p.ID]
	h.mu.Unlock()
	cfg = cfg.OnDisk(d).InFiles(64 << 10)
	for _, o := range opts {
		o(&cfg)
	}
	n, err := raftlog.Open(cfg)
	if err == nil {
		h.mu.Lock()
		h.nodes[p.ID] = n
		h.mu.Unlock()
	}
	return n, err
}

// lockedWriter is a writer that several goroutines may use at the same time.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// logOf returns the messages that a peer has logged.
func (h *harness) logOf(p api.Peer) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.logs[p.ID].String()
}

// isolate disconnects a peer from all other peers until heal is called.
func (h *harness) isolate(p api.Peer) (heal func()) {
	var others []string
	for i := range 10 {
		if q := peerInfo(i); q != p {
			others = append(others, q.Addr)
		}
	}
	for _, a := range others {
		h.net.CutBoth(p.Addr, a)
	}
	return func() {
		for _, a := range others {
			h.net.HealBoth(p.Addr, a)
		}
	}
}

// recorder is a state machine in memory that records the updates in the order in which they are
// applied.
type recorder struct {
	mu      sync.Mutex
	applied uint64
	updates []string
	before  func(io.Writer) error // if not nil, called before a snapshot writes its data
	err     error                 // the error that Apply returns
}

func (r *recorder) LastApplied() (uint64, error) { return 0, nil }

func (r *recorder) Apply(entries []api.Entry, through uint64) error {
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

func (r *recorder) recordedUpdates() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.updates...)
}

func (r *recorder) Snapshot() (io.WriterTo, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &recorderSnapshot{before: r.before}
	return s, gob.NewEncoder(&s.data).Encode(r.updates)
}

// recorderSnapshot is a snapshot of a recorder.
type recorderSnapshot struct {
	data   bytes.Buffer
	before func(io.Writer) error
}

func (s *recorderSnapshot) WriteTo(to io.Writer) (int64, error) {
	if s.before != nil {
		if err := s.before(to); err != nil {
			return 0, err
		}
	}
	return s.data.WriteTo(to)
}

// beforeWrite sets a function that is called before a snapshot is written.
func (r *recorder) beforeWrite(f func(io.Writer) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = f
}

// failApply makes Apply return err.
func (r *recorder) failApply(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *recorder) Restore(index uint64, from io.Reader) error {
	var updates []string
	if err := gob.NewDecoder(from).Decode(&updates); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updates, r.applied = updates, index
	return nil
}

// candidate is a candidate in an election, with the roles of all statuses that it has published.
type candidate struct {
	*raftlog.Election
	mu    sync.Mutex
	roles []leaderelection.Role
	ended chan struct{}
	err   error // the result of ElectLeader; set before ended is closed
}

// startCandidate starts a candidate at a node.
func startCandidate(t testing.TB, n *raftlog.Node, name string, opts ...raftlog.Option) *candidate {
	t.Helper()
	e, err := raftlog.NewElection(n, name, opts...)
	require.NoError(t, err)
	c := &candidate{Election: e, ended: make(chan struct{})}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for s := range e.Status() {
			c.mu.Lock()
			c.roles = append(c.roles, s.Role)
			c.mu.Unlock()
		}
	}()
	go func() {
		c.err = e.ElectLeader()
		<-watched
		close(c.ended)
	}()
	return c
}

// startLeader starts a candidate at a node, and waits until it leads.
func startLeader(t testing.TB, n *raftlog.Node, name string, opts ...raftlog.Option) *candidate {
	t.Helper()
	c := startCandidate(t, n, name, opts...)
	c.waitForLeadership(t)
	return c
}

func (c *candidate) isLeader() bool {
	l := c.Current().Leadership
	return l != nil && l.Err() == nil
}

// waitForLeadership waits until the candidate leads, and returns its token.
func (c *candidate) waitForLeadership(t testing.TB) int64 {
	t.Helper()
	waitFor(t, "the candidate leads", c.isLeader)
	return c.Current().Leadership.Token()
}

// waitForEnd waits until the candidacy ends, and requires that ElectLeader returns the reason.
func (c *candidate) waitForEnd(t testing.TB, reason error) {
	t.Helper()
	receive(t, c.ended)
	require.ErrorIs(t, c.err, reason)
}

func (c *candidate) wasSuspended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.roles, leaderelection.Suspended)
}

func deleteElection(t testing.TB, n *raftlog.Node, name string) {
	t.Helper()
	require.NoError(t, raftlog.DeleteElection(n, name, raftlog.WithContext(contextWithin(t, time.Minute))))
}

func restartElection(t testing.TB, n *raftlog.Node, name string) {
	t.Helper()
	require.NoError(t, raftlog.RestartElection(n, name, raftlog.WithContext(contextWithin(t, time.Minute))))
}

// runCluster calls f in a bubble of testing/synctest, with a cluster of n peers that runCluster has started.
func runCluster(t *testing.T, n int, f func(t *testing.T, h *harness), opts ...func(*raftlog.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, n)
		h.startAll(opts...)
		f(t, h)
	})
}

func contextWithin(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// waitFor waits, in fake time, until the condition is met.
func waitFor(t testing.TB, condition string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !met(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", condition)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// receive waits, in fake time, until the channel is closed or contains a value, which it returns.
func receive[T any](t testing.TB, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(time.Minute):
		t.Fatal("nothing is received within a minute")
	}
	return value
}

func (h *harness) nodeOf(p api.Peer) *raftlog.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes[p.ID]
}

func (h *harness) machine(p api.Peer) *recorder {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machines[p.ID]
}

// isLeader reports whether the peer leads the log and its lease is valid.
func isLeader(n *raftlog.Node) bool {
	i := n.Info()
	return i.Role == "leader" && i.Lease > 0
}

// waitForLeader waits until a peer leads the log, and returns it.
func (h *harness) waitForLeader(t testing.TB) api.Peer {
	t.Helper()
	var leader api.Peer
	waitFor(t, "a leader", func() bool {
		for _, n := range h.runningNodes() {
			if isLeader(n) {
				leader = n.Info().Peer
				return true
			}
		}
		return false
	})
	return leader
}

// otherPeers returns the peers of the harness except for the given peers.
func (h *harness) otherPeers(but ...api.Peer) []api.Peer {
	return slices.DeleteFunc(slices.Clone(h.peers), func(p api.Peer) bool { return slices.Contains(but, p) })
}

// stopPeer closes a peer.
func (h *harness) stopPeer(p api.Peer) error {
	h.mu.Lock()
	n := h.nodes[p.ID]
	delete(h.nodes, p.ID)
	h.mu.Unlock()
	return n.Close()
}

// restart closes a peer, and starts it again.
func (h *harness) restart(t testing.TB, p api.Peer, opts ...func(*raftlog.Config)) *raftlog.Node {
	t.Helper()
	require.NoError(t, h.stopPeer(p))
	return h.startPeer(p, opts...)
}

// crashPeer simulates a power failure of a peer: the peer sends nothing more, and its disk contains an
// arbitrary part of the data that was not synced.
func (h *harness) crashPeer(p api.Peer) {
	heal := h.isolate(p)
	h.disks[p.ID] = h.disks[p.ID].Crash()
	for _, q := range h.otherPeers(p) {
		h.net.Reset(p.Addr, q.Addr)
	}
	_ = h.stopPeer(p)
	heal()
}

// propose proposes an update at a peer, and returns its index.
func (h *harness) propose(t testing.TB, p api.Peer, id api.RequestID, update string) uint64 {
	t.Helper()
	index, err := h.nodeOf(p).Propose(contextWithin(t, time.Minute), id, []byte(update))
	require.NoError(t, err)
	return index
}

// proposeAll proposes the updates at a peer one after another.
func (h *harness) proposeAll(t testing.TB, p api.Peer, updates ...string) {
	t.Helper()
	for _, u := range updates {
		h.propose(t, p, api.NewRequestID(), u)
	}
}

// proposeUntilKnown proposes an update again and again, with the same ID, until Propose returns the index of
// its entry.
func proposeUntilKnown(t testing.TB, n *raftlog.Node, id api.RequestID, update string) uint64 {
	t.Helper()
	for {
		index, err := n.Propose(contextWithin(t, time.Minute), id, []byte(update))
		if err == nil {
			return index
		}
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
	}
}

// syncPeer waits until a peer has applied all updates that were confirmed.
func (h *harness) syncPeer(t testing.TB, p api.Peer) {
	t.Helper()
	require.NoError(t, h.nodeOf(p).Sync(contextWithin(t, time.Minute)), "sync at %s", p.ID)
}

// compact calls Compact at each peer, and returns the index of the last snapshot.
func (h *harness) compact(t testing.TB, peers ...api.Peer) (index uint64) {
	t.Helper()
	for _, p := range peers {
		var err error
		index, err = h.nodeOf(p).Compact(contextWithin(t, time.Minute))
		require.NoError(t, err)
	}
	return index
}

// leaveBehind isolates a peer until it needs a snapshot: meanwhile the other peers apply numberedUpdates("a",
// 20) and truncate their logs. All peers must use shortWindow. The caller calls heal to reconnect the peer.
func (h *harness) leaveBehind(t testing.TB, p api.Peer) (heal func()) {
	t.Helper()
	heal = h.isolate(p)
	h.proposeAll(t, h.otherPeers(p)[0], numberedUpdates("a", 20)...)
	time.Sleep(4 * time.Minute)
	h.compact(t, h.otherPeers(p)...)
	return heal
}

// requireUpdates waits until each of the peers has applied all confirmed updates, and requires that its state
// machine then contains exactly the given updates.
func (h *harness) requireUpdates(t testing.TB, peers []api.Peer, updates ...string) {
	t.Helper()
	for _, p := range peers {
		h.syncPeer(t, p)
		require.Equal(t, updates, h.machine(p).recordedUpdates(), "at %s", p.ID)
	}
}

// numberedUpdates returns n updates: the name followed by each of the numbers 0 to n-1.
func numberedUpdates(name string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(name, i))
	}
	return all
}

// slowElections sets an election timeout of four seconds, for tests that take minutes of fake time.
func slowElections(c *raftlog.Config) {
	c.ElectionTimeout, c.Heartbeat = 4*time.Second, 800*time.Millisecond
}
