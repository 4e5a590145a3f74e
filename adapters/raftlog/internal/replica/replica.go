// Package replica implements the state that every peer derives from the log alone: the request IDs
// within the deduplication window, the candidates of elections, and the members of the cluster. This
// state is equal on all peers at the same index. The package reads no clock: its time is the time of
// the newest entry, which the leader has written into the entry. The package also encodes and decodes
// the data of entries.
package replica

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

const (
	// MaxAhead is how far the time of a request ID may be ahead of the log's clock.
	MaxAhead = 15 * time.Minute
	// retentionSlack is the time for which a request ID is stored after the window of the ID has
	// passed.
	retentionSlack = time.Minute
)

// State is the state that a peer derives from the log up to one index. It must not be used
// concurrently.
type State struct {
	Index, Term uint64        // the index and the term of the last applied entry
	Clock       time.Time     // the clock of the log: the newest time of an entry
	Window      time.Duration // the deduplication window
	Horizon     time.Time     // the time before which the peers have removed all request IDs
	Election    time.Duration // the election timeout of the cluster
	// TransferTerm is the newest term whose leader has announced a transfer of its leadership.
	TransferTerm uint64
	Members      Members
	Elections    Elections
	IDs          *IDs
	// Skips are the indexes of the State entries that were not applied, in ascending order: their IDs
	// were known or outside of the window, or their leaderships had ended. There are few, because a
	// leader writes no entry that it knows to be skipped. Peers whose logs start at different entries
	// have different Skips.
	Skips    []uint64
	skipsSum uint64 // a checksum of all skips, including those that were dropped from Skips
	// History is a checksum of all entries that were applied, and of their outcomes. It is equal on all
	// peers at the same index, unless they have applied different entries.
	History uint64

	Disabled Disabled // the safety checks that a test of the simulation disables; empty otherwise
}

// New returns the state of a new cluster with the given voters.
func New(voters []Peer, window, election time.Duration) *State {
	return &State{
		Index: 1, Term: 1, Window: window, Election: election,
		Members: newMembers(voters), Elections: newElections(), IDs: newIDs(),
	}
}

// Outcome is the result of applying an entry to a State.
type Outcome struct {
	Decoded
	// Err is the reason why the entry changes nothing, or nil: api.ErrStale, ErrFuture,
	// ErrRequestIDReused, ErrFenced, ErrChanging or ErrInvalid.
	Err error
	// First is the index of an earlier entry with the same ID if such an entry was applied, and otherwise
	// Index.
	First uint64
	// Election is the name of the election that a Control entry concerns. It is empty for Expire and
	// Forget.
	Election string
	// Expired are the names of the elections that an Expire has changed or a Forget has removed.
	Expired []string
	// Ended are the candidates of an election when the entry has ended it.
	Ended []Candidate
	// Change is the configuration change that the engine must apply, or nil.
	Change *raftpb.ConfChangeV2
	// Steps are the configuration changes that the engine must apply in order, instead of Change.
	Steps []*raftpb.ConfChangeV2
	// Moved reports whether the entry has changed the address of a member.
	Moved bool
}

// Skipped reports whether the entry changes nothing, so that the state machine must not apply it.
func (o Outcome) Skipped() bool { return o.Err != nil || o.First != o.Index }

// CheckID returns the index of the entry that was applied with an ID, and whether there is such an
// entry. The error is [api.ErrRequestIDReused] if that entry has other data. If there is no such entry,
// the error is the reason why an update with this ID would not be applied at the given time, or nil.
func (s *State) CheckID(id api.RequestID, sum uint32, now time.Time) (index uint64, known bool, err error) {
	if index, was, ok := s.IDs.Lookup(id); ok {
		if was != sum {
			return index, true, fmt.Errorf("%w (entry %d)", api.ErrRequestIDReused, index)
		}
		return index, true, nil
	}
	if now.Before(s.Clock) {
		now = s.Clock
	}
	switch made := id.Time(); {
	case made.Before(now.Add(-s.Window)), made.Before(s.Horizon):
		return 0, false, fmt.Errorf("%w: the time of the request ID is %v, and the window is %v", api.ErrStale, made.UTC(), s.Window)
	case made.After(now.Add(MaxAhead)):
		return 0, false, fmt.Errorf("%w: the time of the request ID is %v, and the time of the leader is %v", api.ErrFuture, made.UTC(), now.UTC())
	}
	return 0, false, nil
}

// Apply applies the next entry of the log. If it returns an error, the entry cannot be decoded or is
// not the next one, and the state must not be used any more.
func (s *State) Apply(e *raftpb.Entry) (Outcome, error) {
	o, err := s.applyEntry(e)
	if err == nil {
		s.extendHistory(e, o)
	}
	return o, err
}

// extendHistory adds an entry and its outcome to the checksum History.
func (s *State) extendHistory(e *raftpb.Entry, o Outcome) {
	result := o.First << 1
	if o.Err != nil {
		result |= 1
	}
	data := e.GetData()
	for _, v := range [...]uint64{e.GetIndex(), e.GetTerm(), uint64(len(data))<<32 | uint64(Sum(data)), result} {
		s.History = (s.History ^ v) * 0x9e3779b97f4a7c15
		s.History ^= s.History >> 32
	}
}

func (s *State) applyEntry(e *raftpb.Entry) (Outcome, error) {
	if e.GetIndex() != s.Index+1 {
		return Outcome{}, fmt.Errorf("%w: entry %d does not follow the log: the next entry is %d", ErrMalformed, e.GetIndex(), s.Index+1)
	}
	d, err := DecodeEntry(e)
	if err != nil {
		return Outcome{}, err
	}
	s.Index, s.Term = d.Index, d.Term
	o := Outcome{Decoded: d, First: d.Index}
	if d.Kind == api.KindCheckpoint {
		return o, nil
	}
	if d.Time.After(s.Clock) {
		s.Clock = d.Time
	}
	switch d.Kind {
	case api.KindState:
		s.deduplicate(&o)
		if o.Skipped() {
			s.Skips = append(s.Skips, o.Index)
			s.skipsSum = s.skipsSum*31 + o.Index
		}
	case api.KindConfig:
		err = s.applyConfig(&o)
	case api.KindControl:
		err = s.applyControl(&o)
	}
	if before := s.Clock.Add(-s.Window - retentionSlack); before.After(s.Horizon) {
		s.Horizon = before // a longer window does not lower the horizon
		s.IDs.Expire(before)
	}
	return o, err
}

// deduplicate decides whether an update, or a requested change of the members, is the first entry with
// its ID, and records the result in o. It stores the ID if the entry must be applied.
func (s *State) deduplicate(o *Outcome) {
	index, known, err := s.CheckID(o.ID, o.Sum, o.Time)
	switch {
	case s.Disabled.Has(CheckDeduplication):
	case known:
		o.First, o.Err = index, err
	case !s.GuardHolds(o.Guard):
		o.Err = api.ErrFenced
	case err != nil:
		o.Err = err
	default:
		s.IDs.Insert(o.ID, o.Index, o.Sum)
	}
}

// DropSkips removes the skips up to and including the given index, because the log of this peer does
// not contain their entries any more. Slices that were read from Skips before do not change.
func (s *State) DropSkips(through uint64) {
	if i, found := slices.BinarySearch(s.Skips, through); found || i > 0 {
		if found {
			i++
		}
		s.Skips = slices.Clone(s.Skips[i:])
	}
}

// GuardHolds reports whether the leadership that the guard identifies continues: the head of its
// election has the guard's token. It returns true for the zero guard.
func (s *State) GuardHolds(g Guard) bool {
	head, found := s.Elections.Get(g.Election).Head()
	return g == (Guard{}) || found && head.Token == g.Token
}

func (s *State) applyControl(o *Outcome) error {
	op, err := DecodeOp(o.Data)
	if err != nil {
		return err
	}
	switch op.Do {
	case Expire:
		o.Expired = s.Elections.expirePeer(op, o.Index)
	case Forget:
		o.Expired, o.Err = s.Elections.forgetThrough(op, o.Index)
	case Transfer:
		s.TransferTerm = o.Term
	case Settled:
		if m := &s.Members; m.Unsettled() && op.Through == m.Changed {
			m.Settled = o.Index
		}
	case Move:
		o.Err = s.Members.moveMember(op.Peer, op.Addr, o.Index)
		o.Moved = o.Err == nil
	case Window:
		s.Window = max(s.Window, op.Window) // a longer window does not restore removed IDs
	case Join, Leave, End, Restart:
		before := s.Elections.Get(op.Election)
		o.Election = op.Election
		o.Err = s.Elections.applyOp(op, o.Index, s.Clock)
		if s.Elections.Get(op.Election).Ended {
			o.Ended = before.Candidates
		}
	}
	return nil
}

// PruneIndex returns the index before the first entry whose ID is stored. A log that starts after this
// index contains the entries of all stored IDs.
func (s *State) PruneIndex() uint64 {
	if oldest, ok := s.IDs.OldestIndex(); ok {
		return oldest - 1
	}
	return s.Index
}

// RestartCluster turns the state into the state of a new cluster with the given voters. The next entry
// of the log has the current index plus gap+1. IDs of removed peers can be used again.
func (s *State) RestartCluster(voters []Peer, gap uint64) {
	s.Index += gap
	s.Term++
	s.Members = newMembers(voters)
	s.Members.Index = s.Index
}
