package replica

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// Members are the peers of the cluster. The slices of a Members are replaced, but never modified.
type Members struct {
	Index    uint64 // the index of the entry that has last changed the membership
	Voters   []Peer
	Outgoing []Peer // the previous voters, while a change of the voters is in progress
	Learners []Peer
	Removed  []string // the IDs of the peers that were removed from the cluster
	// Change is the ID of the newest change of the voters. Changed is the index of the entry that completed
	// this change, or 0 until then. Settled is the index of the entry that confirms that a majority of the new
	// voters has stored the entry at Changed, or 0 until then.
	Change           api.RequestID
	Changed, Settled uint64
}

// RaftID returns the number by which the engine identifies a peer of a cluster. If two peers have the
// same number, the second one cannot join the cluster.
func RaftID(cluster, peer string) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(cluster), cluster, peer))
	id := binary.BigEndian.Uint64(sum[:])
	if id == 0 || id >= math.MaxUint64-1 { // the engine reserves these numbers
		id = 1
	}
	return id
}

// Numbered returns p as a Peer, with the number by which the engine identifies it.
func Numbered(cluster string, p api.Peer) Peer {
	return Peer{ID: p.ID, Addr: p.Addr, Raft: RaftID(cluster, p.ID)}
}

func newMembers(voters []Peer) Members { return Members{Index: 1, Voters: voters} }

// All returns each member once, sorted by ID.
func (m Members) All() []Peer {
	all := slices.Concat(m.Voters, m.Outgoing, m.Learners)
	slices.SortStableFunc(all, func(a, b Peer) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b Peer) bool { return a.ID == b.ID })
}

// Find returns the member that the engine identifies by the given number, and false if there is none.
func (m Members) Find(raft uint64) (Peer, bool) {
	return m.findMember(func(p Peer) bool { return p.Raft == raft })
}

// FindID returns the member with the given ID, and false if there is none.
func (m Members) FindID(id string) (Peer, bool) {
	return m.findMember(func(p Peer) bool { return p.ID == id })
}

// FindAddr returns the member with the given address, and false if there is none.
func (m Members) FindAddr(addr string) (Peer, bool) {
	return m.findMember(func(p Peer) bool { return p.Addr == addr })
}

func (m Members) findMember(matches func(Peer) bool) (Peer, bool) {
	for _, peers := range [...][]Peer{m.Voters, m.Outgoing, m.Learners} {
		if i := slices.IndexFunc(peers, matches); i >= 0 {
			return peers[i], true
		}
	}
	return Peer{}, false
}

// IsVoter reports whether the peer with the given number votes. During a change, the voters of both
// configurations vote.
func (m Members) IsVoter(raft uint64) bool {
	is := func(p Peer) bool { return p.Raft == raft }
	return slices.ContainsFunc(m.Voters, is) || slices.ContainsFunc(m.Outgoing, is)
}

// Joint reports whether a change of the voters is in progress.
func (m Members) Joint() bool { return len(m.Outgoing) > 0 }

// Unsettled reports whether a change of the voters is complete, but most of the new voters may not know
// that. Until they know it, the new voters need the votes of the previous voters.
func (m Members) Unsettled() bool { return m.Changed != 0 && m.Settled == 0 }

// IsRemoved reports whether the ID belongs to a peer that was removed from the cluster.
func (m Members) IsRemoved(id string) bool { return slices.Contains(m.Removed, id) }

// Membership returns the members in the form that users receive.
func (m Members) Membership() api.Membership {
	peers := func(members []Peer) (peers []api.Peer) {
		for _, p := range members {
			peers = append(peers, api.Peer{ID: p.ID, Addr: p.Addr})
		}
		return peers
	}
	return api.Membership{
		Index: m.Index, Voters: peers(m.Voters), Outgoing: peers(m.Outgoing), Learners: peers(m.Learners),
		Removed: slices.Clone(m.Removed),
	}
}

// ConfState returns the members in the form that the engine requires.
func (m Members) ConfState() *raftpb.ConfState {
	numbers := func(members []Peer) (numbers []uint64) {
		for _, p := range members {
			numbers = append(numbers, p.Raft)
		}
		slices.Sort(numbers)
		return numbers
	}
	return &raftpb.ConfState{
		Voters: numbers(m.Voters), VotersOutgoing: numbers(m.Outgoing), Learners: numbers(m.Learners), AutoLeave: new(bool),
	}
}

// CheckVoters returns nil if the given peers can be the next voters, and otherwise an error that
// describes why not.
func (m Members) CheckVoters(voters []Peer) error {
	if len(voters) == 0 {
		return fmt.Errorf("%w: no voters", api.ErrInvalid)
	}
	all := m.All()
	for i, p := range voters {
		switch {
		case p.ID == "" || p.Addr == "":
			return fmt.Errorf("%w: peer %d has no ID or no address", api.ErrInvalid, i)
		case !utf8.ValidString(p.ID) || !utf8.ValidString(p.Addr): // because commands show IDs and addresses as text
			return fmt.Errorf("%w: the ID or the address of peer %d is not UTF-8: %q at %q", api.ErrInvalid, i, p.ID, p.Addr)
		case m.IsRemoved(p.ID):
			return fmt.Errorf("%w: peer %s was removed, and its ID cannot be used again", api.ErrInvalid, p.ID)
		}
		for _, q := range slices.Concat(voters[:i], all) {
			switch {
			case q.ID == p.ID && q.Addr == p.Addr:
				if slices.Contains(voters[:i], q) {
					return fmt.Errorf("%w: peer %s is listed twice", api.ErrInvalid, p.ID)
				}
			case q.ID == p.ID:
				return fmt.Errorf("%w: peer %s has address %s, not %s: to change it, start the peer with the new address", api.ErrInvalid, p.ID, q.Addr, p.Addr)
			case q.Addr == p.Addr:
				return fmt.Errorf("%w: peers %s and %s have the same address %s", api.ErrInvalid, q.ID, p.ID, p.Addr)
			case q.Raft == p.Raft:
				return fmt.Errorf("%w: the IDs %s and %s cannot be in one cluster (their hashes collide)", api.ErrInvalid, q.ID, p.ID)
			}
		}
	}
	isVoter := func(p Peer) bool { return slices.ContainsFunc(m.Voters, p.Is) }
	if len(voters) == len(m.Voters) && !slices.ContainsFunc(voters, func(p Peer) bool { return !isVoter(p) }) {
		return fmt.Errorf("%w: the requested voters are the current voters", api.ErrInvalid)
	}
	return nil
}

// applyConfig applies a Config entry. It rejects an entry that does not fit the current members: a new
// leader may have proposed again what an entry of its predecessor has already done.
func (s *State) applyConfig(o *Outcome) error {
	c, err := DecodeConfig(o.Data)
	if err != nil {
		return err
	}
	m := &s.Members
	reject := func(reason string) error {
		o.Err = fmt.Errorf("%w: %s", api.ErrInvalid, reason)
		return nil
	}
	switch c.Phase {
	case Admit:
		if len(c.Peers) != 1 || m.Joint() || m.IsRemoved(c.Peers[0].ID) {
			return reject("the peer was removed, or a change of the voters is in progress")
		}
		if _, found := m.Find(c.Peers[0].Raft); found {
			return reject("the peer is a member already")
		}
		m.Learners = append(slices.Clip(m.Learners), c.Peers[0])
	case Dismiss:
		i := -1
		if len(c.Peers) == 1 && !m.Joint() {
			i = slices.IndexFunc(m.Learners, c.Peers[0].Is)
		}
		if i < 0 {
			return reject("the peer is not a learner")
		}
		m.Learners = slices.Delete(slices.Clone(m.Learners), i, i+1)
	case Joint:
		if m.Joint() {
			o.Err = fmt.Errorf("%w: another change was requested first", api.ErrChanging)
			if index, known, err := s.CheckID(o.ID, o.Sum, o.Time); known {
				o.First, o.Err = index, err
			}
			return nil
		}
		s.deduplicate(o)
		if o.Skipped() {
			return nil
		}
		m.Outgoing, m.Voters = m.Voters, m.withCurrentAddrs(c.Peers)
		m.Learners = slices.DeleteFunc(slices.Clone(m.Learners), func(p Peer) bool { return slices.ContainsFunc(c.Peers, p.Is) })
		m.Change, m.Changed, m.Settled = o.ID, 0, 0
	case Final:
		if !m.Joint() {
			return reject("no change is in progress")
		}
		for _, p := range m.Outgoing {
			if !slices.ContainsFunc(m.Voters, p.Is) {
				m.Removed = append(slices.Clip(m.Removed), p.ID)
			}
		}
		m.Outgoing, m.Changed = nil, o.Index
	case Recover:
		if len(c.Peers) != 1 {
			return reject("a recovered cluster must have exactly one peer")
		}
		o.Steps = m.recoverAs(c.Peers[0])
		m.Index = o.Index
		return nil
	}
	m.Index = o.Index
	o.Change = o.Decoded.Change
	return nil
}

// moveMember changes the address of the member with the given number. It returns an error if another
// member has that address.
func (m *Members) moveMember(raft uint64, addr string, index uint64) error {
	if _, member := m.Find(raft); !member {
		return fmt.Errorf("%w: the peer with the new address is not a member", api.ErrInvalid)
	}
	if other, taken := m.FindAddr(addr); taken && other.Raft != raft {
		return fmt.Errorf("%w: address %s already belongs to peer %s", api.ErrInvalid, addr, other.ID)
	}
	for _, peers := range []*[]Peer{&m.Voters, &m.Outgoing, &m.Learners} {
		*peers = slices.Clone(*peers)
		for i := range *peers {
			if (*peers)[i].Raft == raft {
				(*peers)[i].Addr = addr
			}
		}
	}
	m.Index = index
	return nil
}

// withCurrentAddrs returns the given peers, each with its address as a member. The address of a peer
// may have changed since the entry that lists the peer was written.
func (m *Members) withCurrentAddrs(peers []Peer) []Peer {
	peers = slices.Clone(peers)
	for i, p := range peers {
		if member, known := m.Find(p.Raft); known {
			peers[i].Addr = member.Addr
		}
	}
	return peers
}

// recoverAs makes the peer self the only voter, even if a change is in progress, and removes all other
// members. It returns the configuration changes that the engine must apply.
func (m *Members) recoverAs(self Peer) (steps []*raftpb.ConfChangeV2) {
	if m.Joint() {
		steps = append(steps, &raftpb.ConfChangeV2{}) // an empty change leaves the joint configuration
	}
	change := &raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransition_ConfChangeTransitionJointExplicit.Enum()}
	addStep := func(t raftpb.ConfChangeType, raft uint64) {
		change.Changes = append(change.Changes, &raftpb.ConfChangeSingle{Type: t.Enum(), NodeId: &raft})
	}
	if !slices.ContainsFunc(m.Voters, self.Is) {
		addStep(raftpb.ConfChangeAddNode, self.Raft)
	}
	for _, p := range slices.Concat(m.Voters, m.Learners) {
		if p.Raft != self.Raft {
			addStep(raftpb.ConfChangeRemoveNode, p.Raft)
		}
	}
	if len(change.Changes) > 0 {
		steps = append(steps, change, &raftpb.ConfChangeV2{})
	}
	for _, p := range m.All() {
		if p.ID != self.ID && !m.IsRemoved(p.ID) {
			m.Removed = append(slices.Clip(m.Removed), p.ID)
		}
	}
	m.Removed = slices.DeleteFunc(slices.Clone(m.Removed), func(id string) bool { return id == self.ID })
	m.Voters, m.Outgoing, m.Learners = []Peer{self}, nil, nil
	m.Change, m.Changed, m.Settled = api.RequestID{}, 0, 0
	return steps
}
