package replica

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// Candidate is a candidate in the queue of an election.
type Candidate struct {
	ID   string
	Name string
	Peer uint64 // the number of the peer to which the candidate belongs
	// Joined is the index of the entry that appended the candidate to the queue.
	Joined uint64
	// Token is the index of the entry that made the candidate the head of the queue, or 0 before that.
	// It is the fencing token of the candidate's leadership: later heads have greater tokens.
	Token uint64
	// Former is how the previous head has left the queue. Snapshots do not contain it, because nothing but
	// the candidate's status depends on it.
	Former Departure
}

// Departure is the way in which the head of a queue has left it.
type Departure byte

const (
	// Unknown is the departure of a head that has not led, or whose process ended before it left. It is
	// also the departure of a head that left before the snapshot from which the state was restored.
	Unknown Departure = iota
	// Resigned is the departure of a head that has ended its leadership and then left.
	Resigned
	// Expired is the departure of a head whose peer has not requested a lease in time.
	Expired
)

// Election is the state of an election. The head of the queue may lead while its peer has a lease. The
// methods of Elections return an Election that does not change any more.
type Election struct {
	Ended       bool
	EndedAt     uint64      // the index of the entry that ended the election; 0 if Ended is false
	RestartedAt uint64      // the index of the entry that restarted the election; 0 if it was never ended
	Date        time.Time   // the log's time at EndedAt or RestartedAt
	Candidates  []Candidate // the queue of candidates, in the order of their arrival
}

// Elections contains all elections, and the peers that have candidates in them. The cost of a method
// for one peer does not depend on the number of elections without candidates of that peer.
type Elections struct {
	byName map[string]Election
	peers  map[uint64]*peerCandidates // the peers that have candidates, by their Raft ID
	// transitions are the entries that ended or restarted elections, in the order of their indexes.
	// Such an entry is obsolete if a later entry has ended or restarted the same election.
	transitions []transition
	forgotten   uint64 // the index up to which Forget has removed transitions
}

// transition identifies an entry that ended or restarted an election.
type transition struct {
	index    uint64
	date     time.Time
	election string
}

func compareTransitions(a, b transition) int { return cmp.Compare(a.index, b.index) }

// peerCandidates counts the candidates of one peer.
type peerCandidates struct {
	candidates map[string]int // the number of the peer's candidates, by election
	heads      int            // the number of elections whose head is a candidate of the peer
}

func newElections() Elections {
	return Elections{byName: map[string]Election{}, peers: map[uint64]*peerCandidates{}}
}

// Get returns the election with the given name, or the zero Election if it does not exist.
func (es *Elections) Get(name string) Election { return es.byName[name] }

// Names returns the names of all elections in ascending order.
func (es *Elections) Names() []string { return slices.Sorted(maps.Keys(es.byName)) }

// Peers returns the numbers of the peers that have candidates, in ascending order.
func (es *Elections) Peers() []uint64 { return slices.Sorted(maps.Keys(es.peers)) }

// OfPeer returns the names of the elections in which a peer has candidates, in ascending order.
func (es *Elections) OfPeer(peer uint64) []string {
	if p := es.peers[peer]; p != nil {
		return slices.Sorted(maps.Keys(p.candidates))
	}
	return nil
}

// HasHead reports whether a candidate of the peer is the head of the queue of any election.
func (es *Elections) HasHead(peer uint64) bool {
	p := es.peers[peer]
	return p != nil && p.heads > 0
}

// Head returns the candidate that may lead, and false if the queue is empty.
func (e Election) Head() (Candidate, bool) {
	if len(e.Candidates) == 0 {
		return Candidate{}, false
	}
	return e.Candidates[0], true
}

// Position returns the position of a candidate in the queue: 0 for the head, and -1 if the queue does
// not contain the candidate.
func (e Election) Position(id string) int {
	return slices.IndexFunc(e.Candidates, func(c Candidate) bool { return c.ID == id })
}

// applyOp applies an operation that concerns one election, at the given time of the log. The error is
// the reason why the operation changes nothing.
func (es *Elections) applyOp(op Op, index uint64, clock time.Time) error {
	e := es.Get(op.Election)
	switch op.Do {
	case Join:
		switch {
		case e.Ended:
			return errEnded
		case e.Position(op.Candidate) >= 0:
			return nil
		}
		c := Candidate{ID: op.Candidate, Name: op.Name, Peer: op.Peer, Joined: index}
		es.storeElection(op.Election, Election{RestartedAt: e.RestartedAt, Date: e.Date, Candidates: append(slices.Clip(e.Candidates), c)}, index)
	case Leave:
		if e.Position(op.Candidate) >= 0 {
			departure := Unknown
			if op.Through != 0 && op.Through == e.Candidates[0].Token {
				departure = Resigned
			}
			es.storeElection(op.Election, e.withoutCandidates(departure, func(c Candidate) bool { return c.ID == op.Candidate }), index)
		}
	case End:
		switch late := op.Through < e.RestartedAt; {
		case op.Through < es.forgotten:
			return errOld
		case !e.Ended && !late:
			es.transitions = append(es.transitions, transition{index, clock, op.Election})
			es.storeElection(op.Election, Election{Ended: true, EndedAt: index, Date: clock}, index)
		}
	case Restart:
		if e.Ended && op.Through >= e.EndedAt {
			es.transitions = append(es.transitions, transition{index, clock, op.Election})
			es.storeElection(op.Election, Election{RestartedAt: index, Date: clock}, index)
		}
	}
	return nil
}

var (
	errEnded = fmt.Errorf("%w: the election was ended", api.ErrInvalid)
	errOld   = fmt.Errorf("%w: the log has already forgotten later ends of elections", api.ErrStale)
)

const (
	// maxTransitions is the maximum number of transitions to store.
	maxTransitions = 1 << 17
	// maxForget is the maximum number of elections that one Forget operation removes, to limit its
	// duration.
	maxForget = 1000
)

// Forgettable returns the field Through of the next Forget operation, or 0 if there is nothing to
// forget. The operation includes the entries that ended or restarted elections before the given time of
// the log, and the oldest of such entries beyond maxTransitions. It stops at the first ended election
// for which over returns false, because a candidate of that election may still have its lease.
func (es *Elections) Forgettable(before time.Time, over func(election string) bool) (through uint64) {
	for i, t := range es.transitions[:min(len(es.transitions), maxForget)] {
		if !t.date.Before(before) && len(es.transitions)-i <= maxTransitions || es.byName[t.election].EndedAt == t.index && !over(t.election) {
			break
		}
		through = t.index
	}
	return through
}

// Oldest returns the time of the oldest entry that a Forget operation would include, and whether there
// is such an entry. tooMany reports whether there are more than maxTransitions such entries.
func (es *Elections) Oldest() (date time.Time, found, tooMany bool) {
	if len(es.transitions) == 0 {
		return time.Time{}, false, false
	}
	return es.transitions[0].date, true, len(es.transitions) > maxTransitions
}

// forgetThrough applies a Forget operation, and returns the ended elections that the operation removes.
func (es *Elections) forgetThrough(op Op, index uint64) (removed []string, err error) {
	if op.Through >= index {
		return nil, fmt.Errorf("%w: entry %d cannot forget elections through %d", api.ErrInvalid, index, op.Through)
	}
	es.forgotten = max(es.forgotten, op.Through)
	for len(es.transitions) > 0 && es.transitions[0].index <= op.Through {
		t := es.transitions[0]
		es.transitions = es.transitions[1:]
		switch e, found := es.byName[t.election]; {
		case e.EndedAt == t.index:
			delete(es.byName, t.election)
			removed = append(removed, t.election)
		case found && !e.Ended && len(e.Candidates) == 0 && e.RestartedAt == t.index:
			delete(es.byName, t.election)
		}
	}
	return removed, nil
}

// expirePeer applies an Expire operation, and returns the names of the elections that the operation
// changes.
func (es *Elections) expirePeer(op Op, index uint64) []string {
	var changed []string
	for _, name := range es.OfPeer(op.Peer) {
		e := es.Get(name)
		left := e.withoutCandidates(Expired, func(c Candidate) bool { return c.Peer == op.Peer && c.Joined <= op.Through })
		if len(left.Candidates) < len(e.Candidates) {
			es.storeElection(name, left, index)
			changed = append(changed, name)
		}
	}
	return changed
}

// withoutCandidates returns the election without the candidates for which removed returns true.
// departure is the way in which they have left.
func (e Election) withoutCandidates(departure Departure, removed func(Candidate) bool) Election {
	left := slices.DeleteFunc(slices.Clone(e.Candidates), removed)
	if len(left) > 0 && left[0].ID != e.Candidates[0].ID {
		left[0].Former = departure
	}
	e.Candidates = left
	return e
}

// storeElection replaces an election by the result of the entry with the given index. It gives a new head of
// the queue its token. It removes an election without candidates, unless it must still remember when
// the election was ended or restarted.
func (es *Elections) storeElection(name string, e Election, index uint64) {
	if len(e.Candidates) > 0 && e.Candidates[0].Token == 0 {
		e.Candidates = slices.Clone(e.Candidates)
		e.Candidates[0].Token = index
	}
	es.addToCounts(name, es.byName[name], -1)
	es.addToCounts(name, e, 1)
	if len(e.Candidates) == 0 && !e.Ended && e.RestartedAt <= es.forgotten {
		delete(es.byName, name)
		return
	}
	es.byName[name] = e
}

// addToCounts adds the candidates of an election to the counts in es.peers if n is 1, and subtracts them if n
// is -1.
func (es *Elections) addToCounts(name string, e Election, n int) {
	for i, c := range e.Candidates {
		p := es.peers[c.Peer]
		if p == nil {
			p = &peerCandidates{candidates: map[string]int{}}
			es.peers[c.Peer] = p
		}
		if i == 0 {
			p.heads += n
		}
		if p.candidates[name] += n; p.candidates[name] == 0 {
			delete(p.candidates, name)
		}
		if len(p.candidates) == 0 {
			delete(es.peers, c.Peer)
		}
	}
}
