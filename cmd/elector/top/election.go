package top

import "time"

// election is the last known state of an election.
type election struct {
	name    string
	queue   []Candidate
	missing bool      // reports that the election does not exist
	updated time.Time // the time of this state; zero before the first one
	err     error     // the error of the last request, if it has failed
	// leadsSince is when the leader was first seen to lead. ledBefore reports that the first list
	// contained this leader, which may have led before.
	leadsSince time.Time
	ledBefore  bool
}

// withCandidates returns the election with new candidates.
func (e election) withCandidates(m Listed) election {
	first := e.updated.IsZero()
	previous := e.leader()
	e.queue, e.updated, e.err, e.missing = m.Candidates, m.At, nil, false
	if first || previous.ID != e.leader().ID {
		e.leadsSince, e.ledBefore = m.At, first
	}
	return e
}

// leader returns the first candidate, or the zero Candidate.
func (e election) leader() Candidate {
	if len(e.queue) == 0 {
		return Candidate{}
	}
	return e.queue[0]
}

// isLeaderless reports whether the election is known to exist without a leader.
func (e election) isLeaderless() bool {
	return !e.updated.IsZero() && !e.missing && len(e.queue) == 0
}
