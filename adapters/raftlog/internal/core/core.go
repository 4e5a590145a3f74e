// Package core implements one peer of the log as a state machine without a goroutine, a clock or I/O.
// Its inputs are messages, the time, requests and results of the disk. Its outputs are the messages to
// send, the data to write, the entries to apply and the replies; [Output] describes them. So a test can
// simulate a cluster of cores, and repeat a run exactly from its seed.
//
// The engine is go.etcd.io/raft. This package adds what the engine leaves to its users:
//
//   - leases (lease.go), and the removal of candidates of silent peers (expiry.go)
//   - requests with exactly one reply (propose.go, forward.go)
//   - changes of the members (change.go, admission.go, address.go, removal.go)
//   - checks of the senders and of their messages (receive.go, votehold.go)
//   - limits for slow state machines and for slow or full disks (backlog.go, stall.go, space.go)
package core

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// Clock provides the time to a peer.
type Clock interface {
	// Now returns the time that has passed since an arbitrary fixed moment, by the monotonic clock.
	Now() time.Duration
	// Wall returns the time of the wall clock, which can jump.
	Wall() time.Time
}

// Log is the part of the log on disk that the engine reads. Package filelog implements it.
type Log interface {
	HardState() *raftpb.HardState
	Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error)
	Term(i uint64) (uint64, error)
	FirstIndex() (uint64, error)
	LastIndex() (uint64, error)
}

// Config configures a peer. All fields are required unless their comments say otherwise.
type Config struct {
	Cluster string
	Self    api.Peer
	Seeds   []api.Peer // the addresses of peers to contact in addition to the members

	// Tick is the interval at which the caller calls Advance. Heartbeat is the interval of heartbeats
	// and lease requests. Election is the election timeout, which must be equal on all peers.
	Tick, Heartbeat, Election time.Duration
	Window                    time.Duration // the deduplication window
	MaxIDs                    int           // the maximum number of request IDs; 0 for no limit
	MaxData                   int           // the maximum size of an update in bytes

	Clock Clock
	// Instances returns the IDs of the data directories of the peers that this peer knows (package
	// identity), by peer ID. This peer sends them to other peers. Instances may be nil.
	Instances func() map[string]string
	// Random returns random numbers, which differ from those in other processes.
	Random func() uint64
	Logger *slog.Logger

	Log      Log
	Replica  *replica.State // the state in the newest snapshot
	Snapshot Snapshot       // the newest snapshot

	// Observe, if not nil, is called with the outcome of each entry that was applied to the replica.
	// Only the simulation sets it.
	Observe  func(replica.Outcome)
	Disabled replica.Disabled // the safety checks that a test of the simulation disables; empty otherwise
}

// Snapshot describes a snapshot that is on the disk of this peer.
type Snapshot struct {
	Index, Term uint64
	Size        int64  // the size of the file in bytes
	Members     uint64 // the index of the last change of the membership that the snapshot contains
}

// Core is one peer. It must not be used concurrently. After any number of inputs, the caller calls
// [Core.TakeOutput] and handles the output. The methods panic with a [Fault] if the peer must stop;
// after such a panic the caller must not call any method.
type Core struct {
	cfg     Config
	self    uint64
	rn      *raft.RawNode
	replica *replica.State
	output  Output

	started       time.Duration
	followedAt    time.Duration // when this peer last accepted a message of a leader; 0 before that
	lastTick      time.Duration
	lastHeartbeat time.Duration
	lastWall      time.Time     // the time of the wall clock when detectSuspend last compared the two clocks
	lastWallAt    time.Duration // the time of the monotonic clock at that comparison

	state  raft.StateType
	lead   uint64
	term   uint64
	commit uint64

	writesInFlight    int      // the number of Writes with entries that are not durable yet
	last              position // the newest entry that this peer has passed to the disk
	first             uint64   // the index of the first entry of the log that is not compacted
	snapshot          Snapshot
	snapshotRequested uint64 // the index of the last membership change for which this peer has requested a snapshot
	applied           uint64 // the index of the last entry that the state machine has applied

	backlog    backlog
	stall      stallDetector
	space      diskSpace
	lease      lease
	expiry     expiry
	proposals  proposals
	change     membershipChange
	names      names
	senders    senders
	peerClocks peerClocks
	admission  admission
	moves      map[uint64]time.Duration // when this leader last proposed the new address of each peer, in a Move entry
	transfer   transfer
	cutOff     cutOff
	candidates candidates
	agreement  agreement
	window     window
	notices    notices
	succession succession

	removed *api.Membership // the members of the cluster if it has removed this peer; otherwise nil
}

// position identifies an entry of the log by its index and term.
type position struct{ index, term uint64 }

const (
	maxBatch          = 1024    // the maximum number of entries in one proposal to the engine
	maxBatchBytes     = 1 << 20 // the maximum size of one proposal to the engine in bytes
	maxKeptData       = 1 << 10 // the maximum size in bytes of an entry whose memory clearBatch keeps for the next batch
	maxWritesInFlight = 2       // the maximum number of Writes of the leader's own entries in flight

	// maxInflightBytes is the size of the unacknowledged entries at which the leader sends no more entries to
	// a peer. It limits how much a peer with a stalled disk has to write. It also limits how long the engine
	// reads entries for a peer that lacks many of them, because the engine does nothing else meanwhile.
	maxInflightBytes = 4 << 20
)

// New returns a peer that continues with the log and the snapshot on its disk.
func New(cfg Config) (_ *Core, err error) {
	defer func() {
		if r := recover(); r != nil { // the engine panics if the log is inconsistent, or cannot be read
			err = fmt.Errorf("%w: %w", api.ErrFault, asFault(r).Err)
		}
	}()
	c := &Core{
		cfg: cfg, self: replica.RaftID(cfg.Cluster, cfg.Self.ID), replica: cfg.Replica, snapshot: cfg.Snapshot,
		started: cfg.Clock.Now(), applied: cfg.Replica.Index,
	}
	c.lastTick, c.lastHeartbeat = c.started, c.started
	c.lastWall, c.lastWallAt = cfg.Clock.Wall(), c.started
	c.lease = newLease(cfg)
	c.proposals = newProposals(cfg)
	c.expiry = newExpiry()
	c.names = newNames(cfg)
	c.peerClocks = peerClocks{times: map[uint64]peerTime{}}
	c.admission = newAdmission(cfg)
	c.moves = map[uint64]time.Duration{}
	c.candidates = newCandidates()
	c.space = newSpace()
	c.agreement = newAgreement(c.started)
	c.backlog.limit = leaderBacklog
	c.candidates.markAll(c)
	c.agreement.recordSum(c)
	last, err := cfg.Log.LastIndex()
	if err == nil {
		c.last.index = last
		c.last.term, err = cfg.Log.Term(last)
	}
	if err == nil {
		c.first, err = cfg.Log.FirstIndex()
		c.replica.DropSkips(c.first - 1)
	}
	if err != nil {
		return nil, fmt.Errorf("raftlog: read the log: %w", err)
	}
	if cfg.Election != c.replica.Election {
		return nil, fmt.Errorf("%w: this peer is configured with an election timeout of %v, but that of the cluster is %v",
			api.ErrInvalid, cfg.Election, c.replica.Election)
	}
	c.rn, err = raft.NewRawNode(&raft.Config{
		ID:                        c.self,
		ElectionTick:              ticksIn(cfg.Election, cfg.Tick),
		HeartbeatTick:             ticksIn(cfg.Heartbeat, cfg.Tick),
		Storage:                   storage{core: c},
		Applied:                   c.replica.Index,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             1 << 20,
		MaxCommittedSizePerReady:  4 << 20,
		MaxUncommittedEntriesSize: 64 << 20,
		MaxInflightMsgs:           256,
		MaxInflightBytes:          maxInflightBytes,
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

// ticksIn returns the number of ticks in the duration d, at least one.
func ticksIn(d, tick time.Duration) int { return max(1, int(d/tick)) }

func (c *Core) now() time.Duration { return c.cfg.Clock.Now() }

// UntilTick returns the time until the caller should call [Core.Advance] again.
func (c *Core) UntilTick() time.Duration { return max(0, c.lastTick+c.cfg.Tick-c.now()) }

// Advance makes the peer act on the time that has passed. A call counts at most one tick, and only if at least
// Config.Tick has passed since the last tick. So an election timeout may last longer than configured if the
// caller is late, but never shorter if it calls Advance too often.
func (c *Core) Advance() {
	defer containPanic()
	now := c.now()
	c.detectSuspend(now)
	if now-c.lastTick >= c.cfg.Tick {
		c.lastTick = now
		c.stall.checkStall(c, now)
		if c.removed == nil {
			c.rn.Tick()
		}
		c.succession.campaignInTurn(c, now)
	}
	if now-c.lastHeartbeat >= c.cfg.Heartbeat {
		c.lastHeartbeat = now
		c.lease.requestLease(c, now)
		c.admission.sendAnnouncement(c)
		c.space.reportFull(c)
	}
	c.expiry.expireSilent(c, now)
	c.expiry.proposeForget(c)
	c.proposals.failOverdueForwards(c, now)
	c.change.advanceChange(c, now)
	c.transfer.proposeTransfer(c, now)
	c.peerClocks.handOverIfClockWrong(c, now)
	c.admission.dismissAbsent(c, now)
	c.window.proposeWindow(c, now)
	c.lease.failOverdueReaders(c, now)
	c.candidates.reconcileCandidates(c, now)
	c.agreement.compareHistories(c, now)
	c.proposeOwnMove()
}

// detectSuspend discards the lease if the machine was suspended since the last call: then the wall clock has
// advanced more than the monotonic clock, which was suspended. Advance calls detectSuspend, and applyGrants
// calls it before it extends the lease. The user of this package must itself detect a suspension that begins
// after these calls.
func (c *Core) detectSuspend(now time.Duration) {
	wall := c.cfg.Clock.Wall()
	if suspended := wall.Sub(c.lastWall) - (now - c.lastWallAt); suspended > c.cfg.Tick {
		c.lease.discardLease()
	}
	c.lastWall, c.lastWallAt = wall, now
}

// Status is the state of a peer for display and for decisions of the caller.
type Status struct {
	Role   Role
	Term   uint64
	Leader api.Peer // zero if this peer knows no leader
	// Lease is the time on this peer's clock until which its candidates may lead. It is 0 if this peer
	// has no lease.
	Lease time.Duration
	// Ready reports whether this peer is the leader of the log and has applied all entries of earlier
	// terms.
	Ready bool

	First, Last, Commit, Applied, Prune uint64
	Snapshot                            Snapshot
	IDs                                 int // the number of request IDs that this peer stores
}

// Role is the role of a peer in the cluster.
type Role int

// These are the roles of a peer.
const (
	Learner Role = iota // receives the log and does not vote
	Follower
	Candidate
	Leader
	Removed // the cluster has removed this peer
)

func (r Role) String() string {
	return [...]string{"learner", "follower", "candidate", "leader", "removed"}[r]
}

// role returns the role of this peer. A peer that only asks whether others would vote for it has the
// role Candidate, too.
func (c *Core) role() Role {
	switch {
	case c.removed != nil:
		return Removed
	case c.state == raft.StateLeader:
		return Leader
	case c.state == raft.StateCandidate || c.state == raft.StatePreCandidate:
		return Candidate
	case c.replica.Members.IsVoter(c.self):
		return Follower
	}
	return Learner
}

// Status returns the current state of the peer.
func (c *Core) Status() Status {
	lease := c.lease.until
	if c.cfg.Disabled.Has(replica.CheckLease) {
		lease = c.now() + c.cfg.Election
	}
	return Status{
		Role: c.role(), Term: c.term, Leader: c.leader(), Lease: lease, Ready: c.proposals.ready,
		First: c.first, Last: c.last.index, Commit: c.commit, Applied: c.applied, Prune: c.replica.PruneIndex(),
		Snapshot: c.snapshot, IDs: c.replica.IDs.Len(),
	}
}

// leader returns the leader, or the zero Peer if this peer does not know the leader.
func (c *Core) leader() api.Peer {
	p, _ := c.replica.Members.Find(c.lead)
	return api.Peer{ID: p.ID, Addr: p.Addr}
}

// Replica returns the state that this peer derives from the log. The caller must not change it.
func (c *Core) Replica() *replica.State { return c.replica }

// Peers returns the peers to connect to. It can contain two addresses of one peer, in the order in
// which to try them: the address in the log, and the configured address. The configured address is
// right if the peer has moved and could not announce its new address, because there was no leader.
func (c *Core) Peers() []api.Peer {
	var all []api.Peer
	for _, p := range c.replica.Members.All() {
		if p.Raft != c.self {
			all = append(all, api.Peer{ID: p.ID, Addr: p.Addr})
		}
	}
	// Connect also to the configured peers, because the cluster may have removed all members that this peer
	// knows while it was disconnected.
	for _, p := range c.cfg.Seeds {
		if p.ID != c.cfg.Self.ID && !c.replica.Members.IsRemoved(p.ID) && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// newRequestID returns a new request ID for an entry that this peer itself proposes.
func (c *Core) newRequestID() api.RequestID {
	a, b := c.cfg.Random(), c.cfg.Random()
	return api.RequestIDFrom(c.cfg.Clock.Wall(), a, b)
}

// proposeControl proposes a Control entry as the leader. It returns the ID of the entry, and whether
// the engine has accepted the proposal.
func (c *Core) proposeControl(op replica.Op) (api.RequestID, bool) {
	id, data := c.newRequestID(), op.Encode()
	h := replica.Header{Kind: api.KindControl, ID: id, Time: c.entryTime(), Sum: replica.Sum(data)}
	return id, c.proposeEntries(&raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Data: replica.EncodeEntry(h, data)})
}
