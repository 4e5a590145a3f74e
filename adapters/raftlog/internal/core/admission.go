package core

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// contact is what peers tell each other beside the engine's messages: that one is there and
// wants the log, how far its log goes, and what their calendars say.
type contact struct {
	names    map[uint64]string
	numbers  map[string]uint64
	skew     map[uint64]skew
	nonce    uint64
	met      bool         // a leader has answered this process
	admit    requestid.ID // the Admit or Dismiss entry of ours that is under way
	admitAt  time.Duration
	active   map[uint64]time.Duration // when each client was last found active
	moving   map[uint64]time.Duration // when a Move entry was last written for a peer
	lookedAt time.Duration

	removed *api.Membership // who the peers are, since this one was removed

	checked    time.Duration // when the calendar was looked at
	handOverBy time.Duration // until when this leader is to begin to hand over
	handing    requestid.ID  // the Transfer entry of ours that is under way
}

// number is that of a peer which was heard, which has a name from then on.
func (k *contact) number(c *Core, id string) uint64 {
	n, known := k.numbers[id]
	if !known {
		n = replica.RaftID(c.cfg.Cluster, id)
		k.numbers[id], k.names[n] = n, id
	}
	return n
}

// skew is what a peer's calendar has said, and when.
type skew struct {
	wall time.Time
	at   time.Duration
}

// maxSkew is how far a leader's calendar may be from the others': by it the IDs of requests
// are judged.
const maxSkew = 5 * time.Minute

func (k *contact) init(c *Core) {
	k.names, k.numbers = map[uint64]string{}, map[string]uint64{}
	k.active = map[uint64]time.Duration{}
	k.moving = map[uint64]time.Duration{}
	k.skew, k.nonce = map[uint64]skew{}, c.cfg.Random()
	for _, p := range c.cfg.Seeds {
		k.number(c, p.ID)
	}
}

// announcement is the message by which a peer introduces itself to the leader.
type announcement struct {
	nonce    uint64
	addr     string
	election time.Duration
	// instances are the data directories that the sender knows. A peer that has not met
	// another peer, which may lose its directory before the two meet, learns of it in this
	// way.
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

// welcome is the leader's reply to an announcement.
type welcome struct {
	nonce     uint64
	term      uint64
	match     uint64
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

// appendInstances appends instances in the order of the IDs, so that equal maps have equal
// encodings.
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

func (c *Core) instances() map[string]string {
	if c.cfg.Instances == nil {
		return nil
	}
	return c.cfg.Instances()
}

// heard takes over what another peer knows.
func (k *contact) heard(c *Core, instances map[string]string) {
	if len(instances) > 0 {
		c.out.Instances = append(c.out.Instances, instances)
	}
}

// announce tells the leader, or whoever may know it, that this peer is there: until a leader
// has answered, as long as this peer is no member, and when no leader is heard any more: the
// others may have removed it, and only tell one that asks.
func (k *contact) announce(c *Core) {
	self, member := c.tables.Members.Find(c.self)
	led := c.promised != 0 && c.now()-c.promised < 2*c.cfg.Election
	if k.met && member && led && self.Addr == c.cfg.Self.Addr || c.state == raft.StateLeader || k.removed != nil {
		return
	}
	body := announcement{k.nonce, c.cfg.Self.Addr, c.cfg.Election, c.instances()}.encode()
	if leader, known := c.peerOf(c.lead); known && c.lead != raft.None && led {
		c.sendFrame(leader, frameAnnounce, body)
		return
	}
	for _, p := range c.Peers() {
		c.sendFrame(p.ID, frameAnnounce, body)
	}
}

// announced takes an announcement. A leader answers with what the peer has acknowledged, and
// admits one that is no member: as a client, that gets the log and has no vote.
func (k *contact) announced(c *Core, from string, body []byte) error {
	a, err := decodeAnnouncement(body)
	if err != nil {
		return fmt.Errorf("%w from %s: %w", errFrame, from, err)
	}
	k.heard(c, a.instances)
	if c.state != raft.StateLeader || !c.props.ready {
		return nil
	}
	if a.election != c.cfg.Election {
		return fmt.Errorf("raftlog: peer %s is configured with an election timeout of %v, the cluster with %v: it is not admitted",
			from, a.election, c.cfg.Election)
	}
	p := replica.Numbered(c.cfg.Cluster, api.Peer{ID: from, Addr: a.addr})
	if q, member := c.tables.Members.Find(p.Raft); member {
		moved := k.move(c, q, a.addr)
		c.sendFrame(from, frameWelcome, welcome{a.nonce, c.term, c.Acknowledged(from), c.instances()}.encode())
		return moved
	}
	return k.welcome(c, p)
}

// Acknowledged is the newest entry that a peer has acknowledged to this one since it leads; 0 if
// it does not lead, or the peer has acknowledged none.
func (c *Core) Acknowledged(id string) (index uint64) {
	raftID := replica.RaftID(c.cfg.Cluster, id)
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == raftID && c.state == raft.StateLeader {
			index = pr.Match
		}
	})
	return index
}

// welcome makes a guest a client, one at a time: the engine turns a second change of the
// configuration that comes too early into nothing, without a word.
func (k *contact) welcome(c *Core, p entry.Peer) error {
	if k.changing(c) || c.change.written() {
		return nil
	}
	for _, q := range c.tables.Members.All() {
		if q.Addr == p.Addr || q.Raft == p.Raft {
			return fmt.Errorf("raftlog: peer %s at %s is not admitted: %s has that address or number", p.ID, p.Addr, q.ID)
		}
	}
	return k.write(c, entry.Admit, p, raftpb.ConfChangeAddLearnerNode)
}

// changing tells whether an entry about a client, or a change of the voters, is under way.
func (k *contact) changing(c *Core) bool {
	return !k.admit.IsZero() && c.now() < k.admitAt+c.cfg.Election || c.tables.Members.Joint()
}

// write has an entry about a client written.
func (k *contact) write(c *Core, phase entry.Phase, p entry.Peer, change raftpb.ConfChangeType) error {
	id := c.newID()
	e, err := c.configure(entry.Header{ID: id}, entry.Config{Phase: phase, Peers: []entry.Peer{p}}, &raftpb.ConfChangeV2{
		Changes: []*raftpb.ConfChangeSingle{{Type: change.Enum(), NodeId: new(p.Raft)}},
	})
	if err == nil && c.propose(e) {
		k.admit, k.admitAt = id, c.now()
	}
	return err
}

// admitted looks for the end of what is under way.
func (k *contact) admitted(o replica.Outcome) {
	if o.ID == k.admit {
		k.admit = requestid.ID{}
	}
}

// absence is for how many election timeouts a client may be silent: then it is left out of the
// configuration, and admitted again if it comes back.
const absence = 600

// dismiss leaves out a client that is not there any more.
func (k *contact) dismiss(c *Core, now time.Duration) {
	if !c.props.ready || now < k.lookedAt+c.cfg.Election {
		return
	}
	k.lookedAt = now
	c.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if typ == raft.ProgressTypeLearner && pr.RecentActive {
			k.active[id] = now
		}
	})
	for _, p := range c.tables.Members.Learners {
		if now-max(k.active[p.Raft], c.expiry.since) < absence*c.cfg.Election {
			continue
		}
		if !k.changing(c) && c.change.under == nil {
			_ = k.write(c, entry.Dismiss, p, raftpb.ConfChangeRemoveNode) // or at the next look
		}
		return // one at a time, as in welcome
	}
}

func (k *contact) lost() { k.admit, k.handing, k.handOverBy = requestid.ID{}, requestid.ID{}, 0 }

// welcomed takes a leader's answer. A peer that has acknowledged entries which its log does
// not have has lost its disk, and what it has voted with it: it must not take part under
// this ID again.
func (k *contact) welcomed(c *Core, body []byte) error {
	w, err := decodeWelcome(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	if w.nonce != k.nonce || w.term != c.term { // what was acknowledged in another term may have been replaced since
		return nil
	}
	k.met = true
	k.heard(c, w.instances)
	k.lacks(c, w.match)
	return nil
}

// lacks is told by a leader which entry this peer has acknowledged. If the log ends before that,
// this is the end of the peer.
func (k *contact) lacks(c *Core, index uint64) bool {
	if index <= c.last.index {
		return false
	}
	c.out.LostLog = fmt.Errorf("%w: this peer has acknowledged entry %d, and its log ends at %d: it was wiped or put back to an older state; remove %s from the cluster, and let it join under a new ID",
		api.ErrIdentity, index, c.last.index, c.cfg.Self.ID)
	return true
}

// sendMoved tells one that was removed who the peers are, so that it tells its clients: when it
// can be taken away.
func (k *contact) sendMoved(c *Core, to string) {
	if c.tables.Members.Unsettled() {
		return
	}
	m := c.Membership()
	if wire.CheckMembership(m) != nil {
		m.Removed = []string{to} // the receiver needs only its own ID
	}
	c.sendFrame(to, frameMoved, wire.AppendMembership(nil, m))
}

// moved is the end of this peer's part in the cluster. It goes on telling clients who the
// peers are.
func (k *contact) moved(c *Core, body []byte) error {
	d := wire.Decoder{B: body}
	m := d.Membership()
	if err := d.End(); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	if slices.Contains(m.Removed, c.cfg.Self.ID) {
		k.removed = &m
		c.props.removed(c)
	}
	return nil
}

// clock notes what a peer's calendar says.
func (k *contact) clock(c *Core, peer uint64, wall time.Time) {
	k.skew[peer] = skew{wall, c.now()}
}

// ahead is how far a peer's calendar is ahead of this one's; false if it was not heard lately.
// It is reckoned by the clock from what the peer has said: this one's calendar may have jumped
// since.
func (k *contact) ahead(c *Core, peer uint64) (time.Duration, bool) {
	s, heard := k.skew[peer]
	now := c.now()
	if !heard || now-s.at > 2*c.cfg.Election {
		return 0, false
	}
	return s.wall.Add(now - s.at).Sub(c.cfg.Clock.Wall()), true
}

// Skew is how far the calendars of most peers are ahead of this one's; 0 if fewer than a
// majority of voters have been heard lately.
func (c *Core) Skew() time.Duration {
	ahead := make([]time.Duration, 1, 8)
	for _, p := range c.tables.Members.Voters {
		if d, heard := c.contact.ahead(c, p.Raft); heard && p.Raft != c.self {
			ahead = append(ahead, d)
		}
	}
	if len(ahead) <= len(c.tables.Members.Voters)/2 || len(ahead) < 3 {
		return 0
	}
	slices.Sort(ahead)
	return ahead[len(ahead)/2]
}

// checkClock has a leader whose calendar is far from the others' hand over: by its calendar the
// IDs of requests would all be stale, or of the future.
func (k *contact) checkClock(c *Core, now time.Duration) {
	if !c.props.ready || now < k.checked+c.cfg.Election {
		return
	}
	k.checked = now
	if ahead := c.Skew(); ahead > maxSkew || ahead < -maxSkew {
		c.cfg.Logger.Warn("clock of this peer differs from the others: handing over leadership", "behind", ahead)
		c.HandOver()
	}
}

// HandOver has another voter lead (heir says which), without an election timeout;
// nothing happens if this peer does not lead, or no other is heard for an election timeout.
// First it is written into the log that leases are not waited for: see expiry.succeed.
func (c *Core) HandOver() {
	defer contain()
	c.contact.handOverBy = c.now() + c.cfg.Election
	c.contact.handOver(c, c.now())
}

func (k *contact) handOver(c *Core, now time.Duration) {
	if now >= k.handOverBy || !c.props.ready || !k.handing.IsZero() || c.heir() == raft.None {
		return
	}
	id := c.newID()
	if c.propose(c.control(id, entry.Op{Do: entry.Transfer})) {
		k.handing, k.handOverBy = id, 0
	}
}

// nearlyAll is how many entries a voter may lack that is to lead: it gets them first.
const nearlyAll = 64

// heir is the voter that is to lead, of those that were heard lately. The engine forgets every
// election timeout whom it has heard, so that for a moment there may be none. It is, in this
// order, one
//
//   - whose calendar is not far from that of most: it would hand over at once, perhaps to
//     another such one, and so on for ever;
//   - that leads no election, and has nearly all of the log: who begins to lead the log gives
//     its lease up (turn), by which its leadership would be interrupted;
//   - with the longest log.
func (c *Core) heir() uint64 {
	type voter struct {
		id, match   uint64
		right, idle bool
	}
	var voters []voter
	most, longest := c.Skew(), uint64(0)
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		votes := slices.ContainsFunc(c.tables.Members.Voters, func(p entry.Peer) bool { return p.Raft == id })
		if id == c.self || !votes || !pr.RecentActive || pr.Match == 0 {
			return
		}
		ahead, heard := c.contact.ahead(c, id)
		voters = append(voters, voter{id, pr.Match, !heard || (ahead-most).Abs() <= maxSkew, !c.tables.Elections.HasHead(id)})
		longest = max(longest, pr.Match)
	})
	if len(voters) == 0 {
		return raft.None
	}
	rank := func(v voter) (r uint64) {
		if v.right {
			r += 2
		}
		if v.idle && v.match+nearlyAll >= longest {
			r++
		}
		return r
	}
	return slices.MaxFunc(voters, func(a, b voter) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.match, b.match), cmp.Compare(a.id, b.id))
	}).id
}

// transfer goes on when what HandOver has written is in force.
func (k *contact) transfer(c *Core, o replica.Outcome) {
	if k.handing.IsZero() || o.ID != k.handing {
		return
	}
	k.handing = requestid.ID{}
	if heir := c.heir(); heir != raft.None {
		c.rn.TransferLeader(heir)
	}
}
