// Package core is one peer of the log, as a machine that does nothing by itself: it is given
// messages, the time, requests, and what the disk has done, and says what is to be sent,
// written, applied and answered. It has no goroutine, opens nothing, and looks at no clock
// but the one that it is given, so that a cluster of them can be played again from a seed.
//
// The engine is go.etcd.io/raft; around it stand here what it leaves to its users: leases
// (lease.go), the expiry of silent candidates (expiry.go), requests that are answered once
// (propose.go, forward.go), changes of the peers (change.go), and who may speak at all (step.go).
package core

import (
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// Clock is the time at one peer.
type Clock interface {
	// Now is monotonic, from any origin.
	Now() time.Duration
	// Wall is what the calendar says; it may jump.
	Wall() time.Time
}

// Log is what the engine reads of the log on disk; package filelog has it.
type Log interface {
	HardState() *raftpb.HardState
	Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error)
	Term(i uint64) (uint64, error)
	FirstIndex() (uint64, error)
	LastIndex() (uint64, error)
}

// Config is what a peer is. Nothing has a default here.
type Config struct {
	Cluster string
	Self    api.Peer
	Seeds   []api.Peer // whom to ask while the configuration is not known

	// All peers of a cluster have the same Election; leases are reckoned by it.
	Tick, Heartbeat, Election time.Duration
	Window                    time.Duration
	MaxIDs                    int // 0: no limit
	MaxData                   int

	Clock Clock
	// Instances are the data directories of the peers that this one knows, by their IDs, to be
	// told to others (package identity); nil for none.
	Instances func() map[string]string
	// Random gives numbers that no process has had before.
	Random func() uint64
	Logger *slog.Logger

	Log      Log
	Tables   *replica.State // at the newest snapshot
	Snapshot Snapshot       // the newest

	Disabled replica.Disabled // empty, except in the controls of the simulation
}

// Snapshot is what there is to know of a snapshot on disk.
type Snapshot struct {
	Index, Term uint64
	Size        int64
	// Members is the index of the configuration in it.
	Members uint64
}

// Core is one peer. All its methods belong to one goroutine. Whoever has called some of them
// calls [Core.Take] then, and carries out what that returns. They panic with a [Fault] when the
// peer must not go on; then none is to be called any more.
type Core struct {
	cfg    Config
	self   uint64
	rn     *raft.RawNode
	tables *replica.State
	out    Out

	started  time.Duration
	promised time.Duration // when this peer has last followed a leader's word
	lastTick time.Duration
	beat     time.Duration // the last heartbeat of ours
	wall     time.Time
	wallAt   time.Duration

	state  raft.StateType
	lead   uint64
	term   uint64
	commit uint64

	writing  int      // Work with entries that is not stored yet
	last     position // of the newest entry given to the disk
	first    uint64   // the first index of the log, after compaction
	snapshot Snapshot
	taking   uint64 // the configuration for which a snapshot is under way

	applied uint64 // by the state machine, see Applied
	backlog backlog
	behind  behind
	space   space

	lease   lease
	expiry  expiry
	props   proposals
	change  change
	contact contact
	stand   standing
	agree   agreement
	window  window
}

type position struct{ index, term uint64 }

const (
	maxBatch      = 1024    // entries of one proposal to the engine
	maxBatchBytes = 1 << 20 // and their size
	maxWriting    = 2       // writes of the leader's own entries under way
)

// New returns the peer as its disk has it.
func New(cfg Config) (_ *Core, err error) {
	defer func() {
		if r := recover(); r != nil { // the log contradicts itself, or cannot be read
			err = fmt.Errorf("%w: %w", api.ErrFault, faultOf(r).Err)
		}
	}()
	c := &Core{
		cfg: cfg, self: replica.RaftID(cfg.Cluster, cfg.Self.ID), tables: cfg.Tables, snapshot: cfg.Snapshot,
		started: cfg.Clock.Now(), applied: cfg.Tables.Index,
	}
	c.lastTick, c.beat = c.started, c.started
	c.wall, c.wallAt = cfg.Clock.Wall(), c.started
	c.lease.init(c)
	c.props.init(c)
	c.expiry.init()
	c.contact.init(c)
	c.stand.init(c)
	c.space.init()
	c.agree.init(c)
	c.backlog.most = maxBacklog
	last, err := cfg.Log.LastIndex()
	if err == nil {
		c.last.index = last
		c.last.term, err = cfg.Log.Term(last)
	}
	if err == nil {
		c.first, err = cfg.Log.FirstIndex()
		c.tables.DropSkips(c.first - 1)
	}
	if err != nil {
		return nil, fmt.Errorf("raftlog: read the log: %w", err)
	}
	if c.cfg.Election != c.tables.Election {
		return nil, fmt.Errorf("%w: the election timeout of the cluster is %v, and that of this peer %v",
			api.ErrInvalid, c.tables.Election, c.cfg.Election)
	}
	c.rn, err = raft.NewRawNode(&raft.Config{
		ID:                        c.self,
		ElectionTick:              ticks(cfg.Election, cfg.Tick),
		HeartbeatTick:             ticks(cfg.Heartbeat, cfg.Tick),
		Storage:                   storage{c},
		Applied:                   c.tables.Index,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             1 << 20,
		MaxCommittedSizePerReady:  4 << 20,
		MaxUncommittedEntriesSize: 64 << 20,
		MaxInflightMsgs:           256,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    logger{cfg.Logger},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	status := c.rn.BasicStatus()
	c.term, c.commit = status.GetTerm(), status.GetCommit()
	return c, nil
}

// ticks is never less than one.
func ticks(d, tick time.Duration) int { return max(1, int(d/tick)) }

func (c *Core) now() time.Duration { return c.cfg.Clock.Now() }

// Due is how long it is until [Core.Advance] is to be called.
func (c *Core) Due() time.Duration { return max(0, c.lastTick+c.cfg.Tick-c.now()) }

// Advance lets time pass: at most one tick for each call, and no two within less than Tick,
// so that an election timeout is never shorter than it should be, however late and however
// often this is called.
func (c *Core) Advance() {
	defer contain()
	now := c.now()
	c.watchClock(now)
	if now-c.lastTick >= c.cfg.Tick {
		c.lastTick = now
		c.behind.check(c, now)
		if c.contact.removed == nil {
			c.rn.Tick()
		}
	}
	if now-c.beat >= c.cfg.Heartbeat {
		c.beat = now
		c.lease.probe(c, now)
		c.contact.announce(c)
		c.space.report(c)
	}
	c.expiry.check(c, now)
	c.expiry.forget(c)
	c.props.check(c, now)
	c.change.check(c, now)
	c.contact.handOver(c, now)
	c.contact.checkClock(c, now)
	c.contact.dismiss(c, now)
	c.window.check(c, now)
	c.lease.overdue(c, now)
	c.stand.reconcile(c, now)
	c.agree.check(c, now)
	c.moveSelf()
}

// watchClock gives the lease up when the calendar has gone further than the clock: the
// machine was asleep, and its clock did not count.
func (c *Core) watchClock(now time.Duration) {
	wall := c.cfg.Clock.Wall()
	if slept := wall.Sub(c.wall) - (now - c.wallAt); slept > c.cfg.Tick {
		c.lease.void()
	}
	c.wall, c.wallAt = wall, now
}

// Status is how a peer stands.
type Status struct {
	Role   Role
	Term   uint64
	Leader api.Peer // zero if unknown
	// Lease is until when this peer's candidates may lead, by its clock; 0 for not now.
	Lease time.Duration
	// Ready says that a leader has applied all entries of before its term.
	Ready bool

	First, Last, Commit, Applied, Prune uint64
	Snapshot                            Snapshot
	IDs                                 int
}

// Role is what a peer is.
type Role int

// The roles.
const (
	Learner Role = iota // receives the log and has no vote
	Follower
	Candidate
	Leader
	Removed // takes no part any more
)

func (r Role) String() string {
	return [...]string{"learner", "follower", "candidate", "leader", "removed"}[r]
}

func (c *Core) role() Role {
	switch {
	case c.contact.removed != nil:
		return Removed
	case c.state == raft.StateLeader:
		return Leader
	case c.state == raft.StateCandidate || c.state == raft.StatePreCandidate:
		return Candidate
	case c.tables.Members.IsVoter(c.self):
		return Follower
	}
	return Learner
}

// Status returns how things stand.
func (c *Core) Status() Status {
	lease := c.lease.until
	if c.cfg.Disabled.Has(replica.CheckLease) {
		lease = c.now() + c.cfg.Election
	}
	return Status{
		Role: c.role(), Term: c.term, Leader: c.leader(), Lease: lease, Ready: c.props.ready,
		First: c.first, Last: c.last.index, Commit: c.commit, Applied: c.applied, Prune: c.tables.PruneIndex(),
		Snapshot: c.snapshot, IDs: c.tables.IDs.Len(),
	}
}

// leader is who leads, as far as this peer knows, and zero if it does not.
func (c *Core) leader() api.Peer {
	p, _ := c.tables.Members.Find(c.lead)
	return api.Peer{ID: p.ID, Addr: p.Addr}
}

// Tables is what the log says. It must only be read, on the goroutine that owns c.
func (c *Core) Tables() *replica.State { return c.tables }

// Peers are those to keep a connection to.
func (c *Core) Peers() []api.Peer {
	var all []api.Peer
	for _, p := range c.tables.Members.All() {
		if p.Raft != c.self {
			all = append(all, api.Peer{ID: p.ID, Addr: p.Addr})
		}
	}
	// A peer that was away for long may know only members that are gone.
	for _, p := range c.cfg.Seeds {
		if _, known := c.tables.Members.FindID(p.ID); !known && !c.tables.Members.IsRemoved(p.ID) && p.ID != c.cfg.Self.ID {
			all = append(all, p)
		}
	}
	return all
}

// calendar is the time that a leader writes into entries: its own, or that of most voters if its
// own is far from it. The log's time never goes back: one entry of a wild calendar, be it that
// by which its leader hands over, would make every ID of after it stale.
func (c *Core) calendar() time.Time {
	wall := c.cfg.Clock.Wall()
	if ahead := c.Skew(); ahead > maxSkew || ahead < -maxSkew {
		return wall.Add(ahead)
	}
	return wall
}

// newID returns a request ID of this peer's own making.
func (c *Core) newID() requestid.ID {
	a, b := c.cfg.Random(), c.cfg.Random()
	return requestid.From(c.cfg.Clock.Wall(), a, b)
}

// control makes an entry of an op.
func (c *Core) control(id requestid.ID, op entry.Op) *raftpb.Entry {
	data := op.Encode()
	h := entry.Header{Kind: api.KindControl, ID: id, Time: c.calendar(), Sum: entry.Sum(data)}
	return &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Data: entry.Encode(h, data)}
}
