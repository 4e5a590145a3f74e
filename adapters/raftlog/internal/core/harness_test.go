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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// world is a cluster of cores on a network and disks that do not fail by themselves, in steps
// of a millisecond. The simulation (internal/simulation) is the one with weather.
type world struct {
	t     *testing.T
	now   time.Duration
	rand  *rand.Rand
	nodes []*node
	wire  []wired
	cut   func(from, to string) bool
	loses func(m wired) bool
	token uint64
}

type wired struct {
	at       time.Duration
	from, to string
	frame    []byte
}

type node struct {
	w       *world
	peer    api.Peer
	core    *Core
	log     *memoryLog
	tables  *replica.State
	down    bool
	apply   []Apply
	stands  bool // its state machine
	stalled bool // its disk
	work    []*Write
	applied []api.Entry
	replies map[uint64]Reply
	skew    time.Duration
	takes   int // snapshots that were to be taken
	dials   int // how often the addresses to dial have changed
}

const (
	tick     = 10 * time.Millisecond
	election = 200 * time.Millisecond
)

func newWorld(t *testing.T, n int) *world {
	w := &world{t: t, rand: rand.New(rand.NewPCG(1, 2)), cut: func(string, string) bool { return false }, loses: func(wired) bool { return false }}
	var voters []entry.Peer
	for i := range n {
		voters = append(voters, replica.Numbered("test", peerNo(i)))
	}
	for i := range n {
		w.add(peerNo(i), voters)
	}
	return w
}

func peerNo(i int) api.Peer {
	return api.Peer{ID: fmt.Sprint("p", i), Addr: fmt.Sprint("host", i, ":1")}
}

func (w *world) add(p api.Peer, voters []entry.Peer) *node {
	n := &node{w: w, peer: p, replies: map[uint64]Reply{}, log: &memoryLog{raft.NewMemoryStorage()}}
	require.NoError(w.t, n.log.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{},
	}}))
	n.tables = replica.New(voters, 7*time.Hour, election)
	n.start(voters)
	w.nodes = append(w.nodes, n)
	return n
}

func (n *node) start(voters []entry.Peer) {
	var seeds []api.Peer
	for _, v := range voters {
		seeds = append(seeds, api.Peer{ID: v.ID, Addr: v.Addr})
	}
	c, err := New(Config{
		Cluster: "test", Self: n.peer, Seeds: seeds, Tick: tick, Heartbeat: 7 * tick, Election: election, Window: 7 * time.Hour,
		MaxData: 1 << 20, Clock: n, Random: n.w.rand.Uint64, Logger: slog.New(slog.DiscardHandler), Log: n.log, Replica: n.tables,
		Snapshot: Snapshot{Index: 1, Term: 1, Members: 1},
	})
	require.NoError(n.w.t, err)
	n.core, n.down = c, false
}

func (n *node) Now() time.Duration { return n.w.now }

func (n *node) Wall() time.Time { return time.Unix(1_700_000_000, 0).Add(n.w.now + n.skew) }

type memoryLog struct{ *raft.MemoryStorage }

func (l *memoryLog) HardState() *raftpb.HardState {
	hs, _, _ := l.InitialState()
	return hs
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for end := w.now + d; w.now < end; w.now += time.Millisecond {
		w.step()
	}
}

func (w *world) step() {
	var later []wired
	due := w.wire
	w.wire = nil
	for _, m := range due {
		i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.peer.ID == m.to })
		switch {
		case m.at > w.now:
			later = append(later, m)
		case i >= 0 && !w.nodes[i].down && !w.cut(m.from, m.to) && !w.loses(m):
			if err := w.nodes[i].core.Receive(m.from, m.frame); err != nil {
				w.t.Logf("%v: %s: %v", w.now, m.to, err)
			}
		}
	}
	w.wire = append(later, w.wire...)
	for _, n := range w.nodes {
		if !n.down {
			n.core.Advance()
			n.drain()
		}
	}
	w.check()
}

func (n *node) drain() {
	for {
		out := n.core.TakeOutput()
		for _, s := range out.Frames {
			n.w.wire = append(n.w.wire, wired{n.w.now + time.Millisecond, n.peer.ID, s.To, s.Data})
		}
		for _, r := range out.Replies {
			_, twice := n.replies[r.Token]
			require.False(n.w.t, twice)
			n.replies[r.Token] = r
		}
		require.NoError(n.w.t, out.LostLog)
		if out.PeersChanged {
			n.dials++
		}
		n.apply = append(n.apply, out.Apply...)
		for len(n.apply) > 0 && !n.stands {
			a := n.apply[0]
			n.apply = n.apply[1:]
			for _, o := range a.Outcomes {
				e := o.Entry()
				e.Skipped = o.Skipped()
				n.applied = append(n.applied, e)
			}
			if a.Create != nil {
				require.Equal(n.w.t, n.applied[len(n.applied)-1].Index, a.Create.Index, "the state machine is not where its snapshot is to be")
				n.takes++
			}
			if k := len(a.Outcomes); k > 0 {
				n.core.ReportApplied(a.Outcomes[k-1].Index, a.Outcomes)
			}
		}
		n.work = append(n.work, out.Writes...)
		for len(n.work) > 0 && !n.stalled {
			work := n.work[0]
			n.work = n.work[1:]
			if work.HardState != nil {
				require.NoError(n.w.t, n.log.SetHardState(work.HardState))
			}
			require.NoError(n.w.t, n.log.Append(work.Entries))
			if work.Compact != 0 {
				require.NoError(n.w.t, n.log.Compact(work.Compact))
			}
			n.core.ReportStored(work, nil)
		}
		if len(out.Writes) == 0 && len(out.Apply) == 0 && len(out.Replies) == 0 {
			return
		}
	}
}

// holders returns the peers whose lease of an election has not ended by their own clocks.
func (w *world) holders(name string) []string {
	var all []string
	for _, n := range w.nodes {
		if n.down || n.core.Status().Lease <= w.now {
			continue
		}
		if first, ok := n.core.Replica().Elections.Get(name).Head(); ok && first.Peer == n.core.self {
			all = append(all, first.ID)
		}
	}
	return all
}

func (w *world) check() {
	require.LessOrEqual(w.t, len(w.holders("e")), 1, "%v: %v", w.now, w.holders("e"))
}

func (w *world) leader() *node {
	for _, n := range w.nodes {
		if !n.down && n.core.Status().Role == Leader && n.core.Status().Ready && n.core.Status().Lease > w.now {
			return n
		}
	}
	return nil
}

// other returns the first node that is not n.
func (w *world) other(n *node) *node {
	if w.nodes[0] == n {
		return w.nodes[1]
	}
	return w.nodes[0]
}

func (w *world) until(what string, ok func() bool) time.Duration {
	began := w.now
	for !ok() {
		w.step()
		w.now += time.Millisecond
		if w.now > began+time.Minute {
			w.t.Fatal("never: ", what)
		}
	}
	return w.now - began
}

func (w *world) propose(n *node, r Request) uint64 {
	w.token++
	r.Token = w.token
	if r.ID.IsZero() {
		r.ID = requestid.From(n.Wall(), w.rand.Uint64(), w.rand.Uint64())
	}
	n.core.Propose(r)
	n.drain()
	return r.Token
}

func (n *node) tablesVoters() []entry.Peer {
	var voters []entry.Peer
	for i := range 3 {
		voters = append(voters, replica.Numbered("test", peerNo(i)))
	}
	return voters
}
