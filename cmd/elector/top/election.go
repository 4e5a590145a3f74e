package top

import "time"

// election is the last known state of an election.
type election struct {
	name    string
	queue   []Candidate
	missing bool      // whether the election does not exist
	updated time.Time // when this state was received; zero if none was received yet
	err     error     // the error of the last request if that request has failed
	// leadsSince is when the screen first showed the leader as leading. ledBefore is true if already the first list
	// contained this leader, which may then have led for longer.
	leadsSince time.Time
	ledBefore  bool
}

// withCandidates returns the state of the election after the backend has listed its candidates.
func (e election) withCandidates(m Listed) election {
	first := e.updated.IsZero()
	previous := e.leader()
	e.queue, e.updated, e.err, e.missing = m.Candidates, m.At, nil, false
	if first || previous.ID != e.leader().ID {
		e.leadsSince, e.ledBefore = m.At, first
	}
	return e
}

// leader returns the first candidate, which leads, or the zero Candidate if there is none.
func (e election) leader() Candidate {
	if len(e.queue) == 0 {
		return Candidate{}
	}
	return e.queue[0]
}

// isLeaderless reports whether the backend has reported that the election exists and has no leader.
func (e election) isLeaderless() bool {
	return !e.updated.IsZero() && !e.missing && len(e.queue) == 0
}
