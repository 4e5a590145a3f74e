package main

import "time"

// succession notes when the leader that is observed began to lead.
type succession struct {
	seen  bool  // there was an observation
	token int64 // of the leader, 0 for none
	since time.Time
}

// observe sets LeadsSince of the leader, unless it was the leader at the first observation.
func (s *succession) observe(leader *place, now time.Time) {
	var token int64
	if leader != nil {
		token = leader.Token
	}
	if token != s.token {
		s.since = time.Time{}
		if s.seen {
			s.since = now
		}
	}
	s.seen, s.token = true, token
	if leader != nil {
		leader.LeadsSince = s.since
	}
}

// interrupt notes that observations are missing: the time at which the next leader began is
// not known.
func (s *succession) interrupt() { s.seen = false }
