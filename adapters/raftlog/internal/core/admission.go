package core

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// admission announces this peer to the leader. On the leader, admission adds announced peers that are
// not members as learners, and removes learners that have been silent for long.
type admission struct {
	nonce    uint64 // a random number, by which this process ignores replies to announcements of an earlier process
	welcomed bool   // whether a leader has accepted an announcement of this process

	rejected   string        // the reason that the leader gave when it rejected the last announcement
	rejectedAt time.Duration // the time at which rejected was last logged

	learnerEntry     api.RequestID // the ID of this leader's Admit or Dismiss entry that is not applied yet, or zero
	learnerEntryAt   time.Duration
	active           map[uint64]time.Duration // the time at which each learner was last active
	absenceCheckedAt time.Duration
}

func newAdmission(cfg Config) admission {
	return admission{nonce: cfg.Random(), active: map[uint64]time.Duration{}}
}

// announcement is the message by which a peer tells the leader its address and its settings.
type announcement struct {
	nonce    uint64
	addr     string
	election time.Duration
	// instances are the IDs of the data directories that the sender knows, by peer. They tell the
	// receiver the directory of a peer that it has never met, so that it can refuse that peer if the
	// peer returns with another directory.
	instances map[string]string
}

func (a announcement) encode() []byte {
	b := wire.AppendString(binary.AppendUvarint(nil, a.nonce), a.addr)
	return appendInstances(binary.AppendVarint(b, int64(a.election)), a.instances)
}

func decodeAnnouncement(body []byte) (announcement, error) {
	d := wire.Decoder{B: body}
	a := announcement{nonce: d.Uint64("nonce"), addr: d.String("address", wire.MaxString), election: time.Duration(d.Int("election timeout"))}
	a.instances = decodeInstances(&d)
	return a, d.End()
}

// welcome is the reply of the leader to an announcement that it has accepted.
type welcome struct {
	nonce     uint64
	term      uint64
	match     uint64 // the index of the newest entry that the receiver has acknowledged to this leader
	instances map[string]string
}

func (w welcome) encode() []byte {
	b := binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(nil, w.nonce), w.term), w.match)
	return appendInstances(b, w.instances)
}

func decodeWelcome(body []byte) (welcome, error) {
	d := wire.Decoder{B: body}
	w := welcome{nonce: d.Uint64("nonce"), term: d.Uint64("term"), match: d.Uint64("index")}
	w.instances = decodeInstances(&d)
	return w, d.End()
}

// appendInstances appends the encoding of instances to b. It sorts them by peer ID, so that equal maps have
// equal encodings.
func appendInstances(b []byte, instances map[string]string) []byte {
	b = binary.AppendUvarint(b, uint64(len(instances)))
	for _, id := range slices.Sorted(maps.Keys(instances)) {
		b = wire.AppendString(wire.AppendString(b, id), instances[id])
	}
	return b
}

func decodeInstances(d *wire.Decoder) map[string]string {
	n := d.Count("number of instances", wire.MaxRemoved, 2)
	if n == 0 {
		return nil
	}
	instances := make(map[string]string, n)
	for range n {
		id := d.String("ID of a peer", wire.MaxString)
		instances[id] = d.String("instance", wire.MaxString)
	}
	return instances
}

// knownInstances returns the IDs of the data directories of the peers that this peer knows, by peer ID.
func (c *Core) knownInstances() map[string]string {
	if c.cfg.Instances == nil {
		return nil
	}
	return c.cfg.Instances()
}

// outputInstances passes the directory IDs that another peer has sent to the caller, in
// Output.Instances.
func (c *Core) outputInstances(instances map[string]string) {
	if len(instances) > 0 {
		c.output.Instances = append(c.output.Instances, instances)
	}
}

// sendAnnouncement, which is called once in each heartbeat interval, sends an announcement to the leader, or
// to all peers if the leader is not known. It sends none while this peer is the leader, or after a leader has
// accepted an announcement, as long as the log contains this peer with its configured address and a leader
// sends messages to it. Without such messages, the other peers may have removed this peer, which they report
// only in reply to an announcement.
func (a *admission) sendAnnouncement(c *Core) {
	self, member := c.replica.Members.Find(c.self)
	led := c.followedAt != 0 && c.now()-c.followedAt < 2*c.cfg.Election
	if a.welcomed && member && led && self.Addr == c.cfg.Self.Addr || c.state == raft.StateLeader || c.removed != nil {
		return
	}
	body := announcement{a.nonce, c.cfg.Self.Addr, c.cfg.Election, c.knownInstances()}.encode()
	if leader, known := c.peerOf(c.lead); known && c.lead != raft.None && led {
		c.sendFrame(leader, frameAnnounce, body)
		return
	}
	c.sendToPeers(frameAnnounce, body)
}

// receiveAnnouncement handles an announcement. A leader replies to members, and admits other peers as
// learners. A follower passes the announcement on, because the sender may be unable to connect to the
// leader, and the leader may not know the sender's address.
func (a *admission) receiveAnnouncement(c *Core, from string, body []byte) error {
	m, err := decodeAnnouncement(body)
	if err != nil {
		return fmt.Errorf("%w from %s: %w", errFrame, from, err)
	}
	if c.senders.isMember(c, from) {
		c.outputInstances(m.instances)
	}
	if leader, known := c.peerOf(c.lead); c.state == raft.StateFollower && known && leader != from {
		c.sendFrame(leader, framePassedOn, append(wire.AppendString(nil, from), body...))
	}
	return a.answerAnnouncement(c, from, m)
}

// receivePassedOn handles, as the leader, an announcement that a follower has received and passed on.
func (a *admission) receivePassedOn(c *Core, from string, body []byte) error {
	d := wire.Decoder{B: body}
	sender := d.String("ID of a peer", wire.MaxString)
	if d.Err != nil {
		return fmt.Errorf("%w from %s: %w", errFrame, from, d.Err)
	}
	m, err := decodeAnnouncement(d.B)
	if err != nil {
		return fmt.Errorf("%w from %s: %w", errFrame, from, err)
	}
	if c.replica.Members.IsRemoved(sender) {
		return nil
	}
	c.cutOff.handlePassedOnAnnouncement(c, c.names.numberOf(sender), c.names.numberOf(from))
	return a.answerAnnouncement(c, sender, m)
}

// answerAnnouncement accepts or rejects the announcement of the peer from, if this peer is the leader.
// A rejected peer receives the reason.
func (a *admission) answerAnnouncement(c *Core, from string, m announcement) error {
	if c.state != raft.StateLeader || !c.proposals.ready {
		return nil
	}
	err := a.acceptAnnouncement(c, from, m)
	if err != nil {
		text := err.Error()
		c.sendFrame(from, frameRejected, wire.AppendString(nil, text[:min(len(text), wire.MaxString)]))
	}
	return err
}

func (a *admission) acceptAnnouncement(c *Core, from string, m announcement) error {
	if m.election != c.cfg.Election {
		return fmt.Errorf("raftlog: peer %s is configured with an election timeout of %v, the cluster with %v: it is not admitted",
			from, m.election, c.cfg.Election)
	}
	p := replica.Numbered(c.cfg.Cluster, api.Peer{ID: from, Addr: m.addr})
	if q, member := c.replica.Members.Find(p.Raft); member {
		moved := c.proposeMove(q, m.addr)
		c.sendFrame(from, frameWelcome, welcome{m.nonce, c.term, c.Acknowledged(from), c.knownInstances()}.encode())
		return moved
	}
	return a.admitLearner(c, p)
}

// Acknowledged returns the index of the newest entry that the given peer has acknowledged to this
// leader in the current term. It returns 0 if this peer is not the leader.
func (c *Core) Acknowledged(id string) (index uint64) {
	raftID := replica.RaftID(c.cfg.Cluster, id)
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == raftID && c.state == raft.StateLeader {
			index = pr.Match
		}
	})
	return index
}

// admitLearner proposes to admit a peer as a learner, one peer at a time: the engine silently drops a
// configuration change that is proposed before the previous configuration change is applied.
func (a *admission) admitLearner(c *Core, p replica.Peer) error {
	if a.isChanging(c) || c.change.isWritten() {
		return nil
	}
	for _, q := range c.replica.Members.All() {
		if q.Addr == p.Addr || q.Raft == p.Raft {
			return fmt.Errorf("raftlog: peer %s is not admitted: its address %s is that of peer %s: start it with its own address, under which other peers reach it", p.ID, p.Addr, q.ID)
		}
	}
	return a.proposeLearner(c, replica.Admit, p, raftpb.ConfChangeAddLearnerNode)
}

// isChanging reports whether an entry about a learner is in flight, or a change of the voters is in
// progress.
func (a *admission) isChanging(c *Core) bool {
	return !a.learnerEntry.IsZero() && c.now() < a.learnerEntryAt+c.cfg.Election || c.replica.Members.Joint()
}

// proposeLearner proposes an entry that admits or dismisses a learner.
func (a *admission) proposeLearner(c *Core, phase replica.Phase, p replica.Peer, change raftpb.ConfChangeType) error {
	id := c.newRequestID()
	e, err := c.configEntry(id, replica.Config{Phase: phase, Peers: []replica.Peer{p}}, &raftpb.ConfChangeV2{
		Changes: []*raftpb.ConfChangeSingle{{Type: change.Enum(), NodeId: new(p.Raft)}},
	})
	if err == nil && c.proposeEntries(e) {
		a.learnerEntry, a.learnerEntryAt = id, c.now()
	}
	return err
}

// configApplied records that the Admit or Dismiss entry of this leader is applied, so that the leader may
// propose another such entry.
func (a *admission) configApplied(o replica.Outcome) {
	if o.ID == a.learnerEntry {
		a.learnerEntry = api.RequestID{}
	}
}

// absenceTimeouts is the number of election timeouts after which the leader removes a silent learner
// from the configuration. The leader admits the learner again when it returns.
const absenceTimeouts = 600

// dismissAbsent proposes to remove a learner that has been silent for absenceTimeouts election
// timeouts.
func (a *admission) dismissAbsent(c *Core, now time.Duration) {
	if !c.proposals.ready || now < a.absenceCheckedAt+c.cfg.Election {
		return
	}
	a.absenceCheckedAt = now
	c.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if typ == raft.ProgressTypeLearner && pr.RecentActive {
			a.active[id] = now
		}
	})
	for _, p := range c.replica.Members.Learners {
		if now-max(a.active[p.Raft], c.expiry.since) < absenceTimeouts*c.cfg.Election {
			continue
		}
		if !a.isChanging(c) && c.change.pending == nil {
			// If the engine silently drops the proposal, a later call of dismissAbsent repeats it.
			_ = a.proposeLearner(c, replica.Dismiss, p, raftpb.ConfChangeRemoveNode)
		}
		return // only one change of the configuration can be in progress
	}
}

// rejectionInterval is the minimum time between two log messages about the same rejection.
const rejectionInterval = time.Minute

// receiveRejected logs why the leader has rejected the announcement of this peer.
func (a *admission) receiveRejected(c *Core, from string, body []byte) error {
	d := wire.Decoder{B: body}
	reason := d.String("reason", wire.MaxString)
	if err := d.End(); err != nil {
		return fmt.Errorf("%w from %s: %w", errFrame, from, err)
	}
	if now := c.now(); reason != a.rejected || now-a.rejectedAt >= rejectionInterval {
		a.rejected, a.rejectedAt = reason, now
		c.cfg.Logger.Error("the leader of the log has not accepted this peer with its address", "leader", from, "reason", reason)
	}
	return nil
}

// receiveWelcome handles the leader's reply to an announcement that the leader has accepted. If this peer has
// acknowledged entries that its log does not contain, it has lost its disk, and with the disk the record of
// the votes that it gave. Such a peer must not participate under this ID again.
func (a *admission) receiveWelcome(c *Core, sender uint64, body []byte) error {
	w, err := decodeWelcome(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	// Ignore what this peer acknowledged in another term, because a later leader may have replaced those
	// entries. Only the leader that this peer follows knows what it has acknowledged in the current term.
	if w.nonce != a.nonce || w.term != c.term || sender != c.lead {
		return nil
	}
	a.welcomed = true
	c.outputInstances(w.instances)
	c.detectLostLog(w.match)
	return nil
}

// detectLostLog reports whether the log of this peer ends before index, although a leader says that this peer
// has acknowledged the entry at index. In this case detectLostLog sets Output.LostLog, so that the peer stops.
func (c *Core) detectLostLog(index uint64) bool {
	if index <= c.last.index {
		return false
	}
	c.output.LostLog = fmt.Errorf("%w: this peer has acknowledged entry %d, and its log ends at %d: it was wiped or put back to an older state; remove %s from the cluster, and let it join under a new ID",
		api.ErrIdentity, index, c.last.index, c.cfg.Self.ID)
	return true
}
