package core

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

const (
	tick     = 10 * time.Millisecond
	election = 200 * time.Millisecond
)

// harness runs a cluster of cores in virtual time, in steps of a millisecond. Networks and disks fail
// only if a test makes them fail. Package simulation injects random faults.
type harness struct {
	t        *testing.T
	now      time.Duration
	rand     *rand.Rand
	founders []replica.Peer
	peers    []*peer
	inFlight []transmission
	cut      func(from, to string) bool // reports whether the connection from one peer to another is cut
	drops    func(m transmission) bool  // reports whether the network loses a frame
	token    uint64                     // the token of the last request that a test has made
}

// transmission is a frame that the simulated network will deliver.
type transmission struct {
	at       time.Duration
	from, to string
	frame    []byte
}

// peer is one core with its simulated log, clock and state machine.
type peer struct {
	h       *harness
	self    api.Peer
	core    *Core
	log     *memoryLog
	replica *replica.State // the replica from which the current process was started
	skew    time.Duration  // how far the wall clock of this peer is ahead of the virtual time

	down        bool
	blocked     bool // whether the state machine applies nothing
	diskStalled bool // whether the disk writes nothing
	apply       []Apply
	writes      []*Write

	observed         []api.Entry // the entries that the replica has applied, and the state machine has not
	applied          []api.Entry
	replies          map[uint64]Reply
	snapshotRequests int
	peersChanged     int // how often Output.PeersChanged was set
}

// newHarness starts a cluster of n voters.
func newHarness(t *testing.T, n int) *harness {
	h := &harness{
		t: t, rand: rand.New(rand.NewPCG(1, 2)), founders: newVoters(n),
		cut: func(string, string) bool { return false }, drops: func(transmission) bool { return false },
	}
	for i := range n {
		h.addPeer(i)
	}
	return h
}

// startCluster starts a cluster of three voters, and waits for a leader.
func startCluster(t *testing.T) (h *harness, leader *peer) {
	t.Helper()
	h = newHarness(t, 3)
	return h, h.waitForLeader()
}

func peerInfo(i int) api.Peer {
	return api.Peer{ID: fmt.Sprint("p", i), Addr: fmt.Sprint("host", i, ":1")}
}

// newVoters returns the test peers with the numbers 0 to n-1.
func newVoters(n int) (all []replica.Peer) {
	for i := range n {
		all = append(all, replica.Numbered("test", peerInfo(i)))
	}
	return all
}

// apiPeersOf returns the IDs and addresses of peers.
func apiPeersOf(peers []*peer) (all []api.Peer) {
	for _, p := range peers {
		all = append(all, p.self)
	}
	return all
}

// addPeer starts the test peer with number i, whose log is empty.
func (h *harness) addPeer(i int) *peer {
	p := &peer{h: h, self: peerInfo(i), replies: map[uint64]Reply{}, log: &memoryLog{raft.NewMemoryStorage()}}
	require.NoError(h.t, p.log.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{},
	}}))
	p.replica = replica.New(h.founders, 7*time.Hour, election)
	p.start()
	h.peers = append(h.peers, p)
	return p
}

// addLearner starts the test peer with number i, and waits until the leader has admitted it as a
// learner.
func (h *harness) addLearner(i int) *peer {
	h.t.Helper()
	p := h.addPeer(i)
	h.waitFor("the learner is admitted", func() bool {
		l := h.leader()
		return l != nil && slices.Contains(l.core.Membership().Learners, p.self)
	})
	return p
}

// start starts a new process of the peer with its replica and its log.
func (p *peer) start() {
	var seeds []api.Peer
	for _, f := range p.h.founders {
		seeds = append(seeds, api.Peer{ID: f.ID, Addr: f.Addr})
	}
	c, err := New(Config{
		Cluster: "test", Self: p.self, Seeds: seeds, Tick: tick, Heartbeat: 7 * tick, Election: election, Window: 7 * time.Hour,
		MaxData: 1 << 20, Clock: p, Random: p.h.rand.Uint64, Logger: slog.New(slog.DiscardHandler), Log: p.log, Replica: p.replica,
		Snapshot: Snapshot{Index: 1, Term: 1, Members: 1},
		Observe: func(o replica.Outcome) {
			e := o.Entry()
			e.Skipped = o.Skipped()
			p.observed = append(p.observed, e)
		},
	})
	require.NoError(p.h.t, err)
	p.core, p.down = c, false
}

// Now implements Clock.
func (p *peer) Now() time.Duration { return p.h.now }

// Wall implements Clock.
func (p *peer) Wall() time.Time { return time.Unix(1_700_000_000, 0).Add(p.h.now + p.skew) }

// memoryLog implements Log.
type memoryLog struct{ *raft.MemoryStorage }

func (l *memoryLog) HardState() *raftpb.HardState {
	hs, _, _ := l.InitialState()
	return hs
}

// advance lets the virtual time d pass for all peers.
func (h *harness) advance(d time.Duration) {
	for end := h.now + d; h.now < end; h.now += time.Millisecond {
		h.deliverAndAdvance()
	}
}

// waitFor lets virtual time pass until ok returns true, and returns the time that has passed. It fails
// the test after a minute.
func (h *harness) waitFor(what string, ok func() bool) time.Duration {
	h.t.Helper()
	start := h.now
	for !ok() {
		h.deliverAndAdvance()
		h.now += time.Millisecond
		if h.now > start+time.Minute {
			h.t.Fatal("not within a minute: ", what)
		}
	}
	return h.now - start
}

// deliverAndAdvance delivers the frames whose time has come, and then advances all cores.
func (h *harness) deliverAndAdvance() {
	var later []transmission
	due := h.inFlight
	h.inFlight = nil
	for _, m := range due {
		i := slices.IndexFunc(h.peers, func(p *peer) bool { return p.self.ID == m.to })
		switch {
		case m.at > h.now:
			later = append(later, m)
		case i >= 0 && !h.peers[i].down && !h.cut(m.from, m.to) && !h.drops(m):
			if err := h.peers[i].core.Receive(m.from, m.frame); err != nil {
				h.t.Logf("%v: %s: %v", h.now, m.to, err)
			}
		}
	}
	h.inFlight = append(later, h.inFlight...)
	for _, p := range h.peers {
		if !p.down {
			p.core.Advance()
			p.handleOutput()
		}
	}
	h.requireOneHolder()
}

// handleOutput takes the output of the core, and sends, applies and writes what the output contains.
func (p *peer) handleOutput() {
	reply := func(r Reply) {
		_, twice := p.replies[r.Token]
		require.False(p.h.t, twice)
		p.replies[r.Token] = r
	}
	for {
		out := p.core.TakeOutput()
		for _, f := range out.Frames {
			p.h.inFlight = append(p.h.inFlight, transmission{p.h.now + time.Millisecond, p.self.ID, f.To, f.Data})
		}
		for _, r := range out.Replies {
			reply(r)
		}
		require.NoError(p.h.t, out.LostLog)
		if out.PeersChanged {
			p.peersChanged++
		}
		p.apply = append(p.apply, out.Apply...)
		for len(p.apply) > 0 && !p.blocked {
			a := p.apply[0]
			p.apply = p.apply[1:]
			var updates []api.Entry
			for len(p.observed) > 0 && p.observed[0].Index <= a.Through {
				e := p.observed[0]
				if e.Kind == api.KindState && !e.Skipped {
					updates = append(updates, e)
				}
				p.applied = append(p.applied, e)
				p.observed = p.observed[1:]
			}
			require.Equal(p.h.t, updates, a.Updates)
			if a.Create != nil {
				require.Equal(p.h.t, p.applied[len(p.applied)-1].Index, a.Create.Index, "the state machine is not at the index of the snapshot")
				p.snapshotRequests++
			}
			if a.Through != 0 {
				p.core.ReportApplied(a.Through)
			}
			for _, r := range a.Replies {
				reply(r)
			}
		}
		p.writes = append(p.writes, out.Writes...)
		for len(p.writes) > 0 && !p.diskStalled {
			w := p.writes[0]
			p.writes = p.writes[1:]
			if w.HardState != nil {
				require.NoError(p.h.t, p.log.SetHardState(w.HardState))
			}
			require.NoError(p.h.t, p.log.Append(w.Entries))
			if w.Compact != 0 {
				require.NoError(p.h.t, p.log.Compact(w.Compact))
			}
			p.core.ReportStored(w, nil)
		}
		if len(out.Writes) == 0 && len(out.Apply) == 0 && len(out.Replies) == 0 {
			return
		}
	}
}

// possibleLeaders returns the candidates that may lead an election: the lease of a candidate's peer is
// valid, and the candidate is the head of the queue according to the replica of that peer.
func (h *harness) possibleLeaders(election string) (holders []string) {
	for _, p := range h.peers {
		if p.down || p.core.Status().Lease <= h.now {
			continue
		}
		if head, ok := p.core.Replica().Elections.Get(election).Head(); ok && head.Peer == p.core.self {
			holders = append(holders, head.ID)
		}
	}
	return holders
}

// requireOneHolder fails the test if more than one candidate may lead election e.
func (h *harness) requireOneHolder() {
	require.LessOrEqual(h.t, len(h.possibleLeaders("e")), 1, "%v: %v", h.now, h.possibleLeaders("e"))
}

// waitForHolder waits until the given candidate, and no other, may lead election e.
func (h *harness) waitForHolder(candidate string) {
	h.t.Helper()
	h.waitFor(candidate+" leads", func() bool { return slices.Equal(h.possibleLeaders("e"), []string{candidate}) })
}

// leader returns the leader of the log if it is ready and has a lease, and nil otherwise.
func (h *harness) leader() *peer {
	for _, p := range h.peers {
		if s := p.core.Status(); !p.down && s.Role == Leader && s.Ready && s.Lease > h.now {
			return p
		}
	}
	return nil
}

// waitForLeader waits until there is a leader of the log that is ready and has a lease, and returns it.
func (h *harness) waitForLeader() *peer {
	h.t.Helper()
	return h.waitForOtherLeader(nil)
}

// waitForOtherLeader waits until a peer other than the former leader leads the log, and returns that
// peer.
func (h *harness) waitForOtherLeader(former *peer) *peer {
	h.t.Helper()
	h.waitFor("a leader", func() bool { return h.leader() != nil && h.leader() != former })
	return h.leader()
}

// handOver makes the leader of the log hand over, and returns how long it takes until another peer
// leads.
func (h *harness) handOver() time.Duration {
	l := h.leader()
	l.core.HandOver()
	l.handleOutput()
	return h.waitFor("another leader", func() bool { return h.leader() != nil && h.leader() != l })
}

// isolate cuts all connections of a peer, in both directions.
func (h *harness) isolate(p *peer) {
	h.cut = func(from, to string) bool { return from == p.self.ID || to == p.self.ID }
}

// otherPeers returns all peers except for the given ones.
func (h *harness) otherPeers(except ...*peer) []*peer {
	return slices.DeleteFunc(slices.Clone(h.peers), func(p *peer) bool { return slices.Contains(except, p) })
}

// setDisksStalled stalls the disks of all peers except for the given ones, or lets these disks
// continue.
func (h *harness) setDisksStalled(stalled bool, except ...*peer) {
	for _, p := range h.otherPeers(except...) {
		p.diskStalled = stalled
	}
}

// propose makes a request at a peer, and returns the token of the request without waiting for the
// reply.
func (h *harness) propose(p *peer, r Request) uint64 {
	h.token++
	r.Token = h.token
	if r.ID.IsZero() {
		r.ID = api.RequestIDFrom(p.Wall(), h.rand.Uint64(), h.rand.Uint64())
	}
	p.core.Propose(r)
	p.handleOutput()
	return r.Token
}

// waitForReply waits until a peer has replied to the request with the given token.
func (h *harness) waitForReply(p *peer, token uint64) Reply {
	h.t.Helper()
	h.waitFor("a reply", func() bool { _, ok := p.replies[token]; return ok })
	return p.replies[token]
}

// request makes a request at a peer and waits for the reply.
func (h *harness) request(p *peer, r Request) Reply {
	h.t.Helper()
	return h.waitForReply(p, h.propose(p, r))
}

// update returns a request that proposes the given update.
func update(data string) Request { return Request{Kind: api.KindState, Data: []byte(data)} }
