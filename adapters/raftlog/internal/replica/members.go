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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// Members is who the peers are.
type Members struct {
	Index    uint64       `json:"index"` // of the entry that made it so
	Voters   []entry.Peer `json:"voters"`
	Outgoing []entry.Peer `json:"outgoing,omitempty"` // while a change is under way
	Clients  []entry.Peer `json:"clients,omitempty"`
	Removed  []string     `json:"removed,omitempty"`
	// Change is the newest change that somebody has asked for, Changed where it was complete,
	// and Settled where that was known to most of the new voters; 0 until then.
	Change  requestid.ID `json:"change"`
	Changed uint64       `json:"changed,omitempty"`
	Settled uint64       `json:"settled,omitempty"`
}

// RaftID is the number by which the engine knows a peer of a cluster. Two peers that would
// have the same number are refused when the second one is to join.
func RaftID(cluster, peer string) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(cluster), cluster, peer))
	id := binary.BigEndian.Uint64(sum[:])
	if id == 0 || id >= math.MaxUint64-1 { // the engine's own
		id = 1
	}
	return id
}

// With returns a peer with its number.
func With(cluster string, p api.Peer) entry.Peer {
	return entry.Peer{ID: p.ID, Addr: p.Addr, Raft: RaftID(cluster, p.ID)}
}

func newMembers(voters []entry.Peer) Members { return Members{Index: 1, Voters: voters} }

// All returns every peer of the configuration once.
func (m Members) All() []entry.Peer {
	all := slices.Concat(m.Voters, m.Outgoing, m.Clients)
	slices.SortStableFunc(all, func(a, b entry.Peer) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b entry.Peer) bool { return a.ID == b.ID })
}

// Find returns the peer with that number.
func (m Members) Find(raft uint64) (entry.Peer, bool) {
	for _, ps := range [][]entry.Peer{m.Voters, m.Outgoing, m.Clients} {
		for _, p := range ps {
			if p.Raft == raft {
				return p, true
			}
		}
	}
	return entry.Peer{}, false
}

// Named returns the peer with that ID.
func (m Members) Named(id string) (entry.Peer, bool) { return named(m.All(), id) }

func named(ps []entry.Peer, id string) (entry.Peer, bool) {
	i := slices.IndexFunc(ps, func(p entry.Peer) bool { return p.ID == id })
	if i < 0 {
		return entry.Peer{}, false
	}
	return ps[i], true
}

// IsVoter tells whether the peer votes, in a change in the old or the new configuration.
func (m Members) IsVoter(raft uint64) bool {
	is := func(p entry.Peer) bool { return p.Raft == raft }
	return slices.ContainsFunc(m.Voters, is) || slices.ContainsFunc(m.Outgoing, is)
}

// Joint tells whether a change is under way.
func (m Members) Joint() bool { return len(m.Outgoing) > 0 }

// Unsettled tells whether a change is complete, and perhaps few of the new voters know: without
// those of before, who know, the others would ask for their votes for ever.
func (m Members) Unsettled() bool { return m.Changed != 0 && m.Settled == 0 }

// Gone tells whether the ID was used by a peer that was removed.
func (m Members) Gone(id string) bool { return slices.Contains(m.Removed, id) }

// Public is m as users see it.
func (m Members) Public() api.Membership {
	peers := func(ps []entry.Peer) []api.Peer {
		var all []api.Peer
		for _, p := range ps {
			all = append(all, api.Peer{ID: p.ID, Addr: p.Addr})
		}
		return all
	}
	return api.Membership{
		Index: m.Index, Voters: peers(m.Voters), Outgoing: peers(m.Outgoing), Learners: peers(m.Clients),
		Removed: slices.Clone(m.Removed),
	}
}

// ConfState is m as the engine wants it.
func (m Members) ConfState() *raftpb.ConfState {
	numbers := func(ps []entry.Peer) []uint64 {
		var all []uint64
		for _, p := range ps {
			all = append(all, p.Raft)
		}
		slices.Sort(all)
		return all
	}
	return &raftpb.ConfState{
		Voters: numbers(m.Voters), VotersOutgoing: numbers(m.Outgoing), Learners: numbers(m.Clients), AutoLeave: new(bool),
	}
}

// Check says what is wrong with voters that are to be, or returns nil.
func (m Members) Check(voters []entry.Peer) error {
	if len(voters) == 0 {
		return fmt.Errorf("%w: no voters", api.ErrInvalid)
	}
	all := m.All()
	for i, p := range voters {
		switch {
		case p.ID == "" || p.Addr == "":
			return fmt.Errorf("%w: peer %d has no ID or no address", api.ErrInvalid, i)
		case !utf8.ValidString(p.ID) || !utf8.ValidString(p.Addr): // they stand in the log as text
			return fmt.Errorf("%w: the ID or the address of peer %d is not UTF-8: %q at %q", api.ErrInvalid, i, p.ID, p.Addr)
		case m.Gone(p.ID):
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
	same := len(voters) == len(m.Voters)
	for _, p := range voters {
		_, was := named(m.Voters, p.ID)
		same = same && was
	}
	if same {
		return fmt.Errorf("%w: the voters do not change", api.ErrInvalid)
	}
	return nil
}

// reconfigure applies a Config entry, if it is still in place: a leader that has just begun
// may have proposed what its predecessor's entry has done.
func (s *State) reconfigure(o *Outcome) error {
	c, err := entry.DecodeConfig(o.Data)
	if err != nil {
		return err
	}
	m := &s.Members
	out := func(why string) error {
		o.Err = fmt.Errorf("%w: %s", api.ErrInvalid, why)
		return nil
	}
	switch c.Phase {
	case entry.Admit:
		if len(c.Peers) != 1 || m.Joint() || m.Gone(c.Peers[0].ID) {
			return out("a client cannot be admitted")
		}
		if _, found := m.Find(c.Peers[0].Raft); found {
			return out("it is a member already")
		}
		m.Clients = append(slices.Clip(m.Clients), c.Peers[0])
	case entry.Dismiss:
		i := -1
		if len(c.Peers) == 1 && !m.Joint() {
			i = slices.IndexFunc(m.Clients, c.Peers[0].Is)
		}
		if i < 0 {
			return out("it is not a client")
		}
		m.Clients = slices.Delete(slices.Clone(m.Clients), i, i+1)
	case entry.Joint:
		if m.Joint() {
			o.Err = fmt.Errorf("%w: it was requested first", api.ErrChanging)
			if index, known, err := s.Known(o.ID, o.Sum, o.Time); known {
				o.First, o.Err = index, err
			}
			return nil
		}
		s.remember(o)
		if o.Skipped() {
			return nil
		}
		m.Outgoing, m.Voters = m.Voters, m.located(c.Peers)
		m.Clients = slices.DeleteFunc(slices.Clone(m.Clients), func(p entry.Peer) bool { return slices.ContainsFunc(c.Peers, p.Is) })
		m.Change, m.Changed, m.Settled = o.ID, 0, 0
	case entry.Final:
		if !m.Joint() {
			return out("no change is under way")
		}
		for _, p := range m.Outgoing {
			if !slices.ContainsFunc(m.Voters, p.Is) {
				m.Removed = append(slices.Clip(m.Removed), p.ID)
			}
		}
		m.Outgoing, m.Changed = nil, o.Index
	case entry.Recover:
		if len(c.Peers) != 1 {
			return out("a cluster is recovered by one peer")
		}
		o.Steps = m.recover(c.Peers[0])
		m.Index = o.Index
		return nil
	default:
		return out("unknown phase " + string(c.Phase))
	}
	m.Index = o.Index
	o.Change = o.Decoded.Change
	return nil
}
