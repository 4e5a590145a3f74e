package main

import "time"

// succession determines when the observed leader became the leader.
type succession struct {
	observed bool  // reports that there was an observation
	token    int64 // the token of the leader, or 0
	since    time.Time
}

// observe sets LeadsSince of the leader, unless the leader was already the leader in the first observation.
func (s *succession) observe(leader *candidateInfo, now time.Time) {
	var token int64
	if leader != nil {
		token = leader.Token
	}
	if token != s.token {
		s.since = time.Time{}
		if s.observed {
			s.since = now
		}
	}
	s.observed, s.token = true, token
	if leader != nil {
		leader.LeadsSince = s.since
	}
}

// recordInterruption records that observations are missing, so it is unknown when the next leader becomes
// the leader.
func (s *succession) recordInterruption() { s.observed = false }
