package main

import "time"

// succession determines when each observed leader became the leader.
type succession struct {
	observed bool  // whether the leader was observed since the last interruption
	token    int64 // the token of the last observed leader, or 0 without a leader
	since    time.Time
}

// observe sets LeadsSince of the leader, unless this leader was the first that was observed. leader is nil if there
// is no leader.
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

// recordInterruption records that observations are missing, so that the start of the next leadership will be unknown.
func (s *succession) recordInterruption() { s.observed = false }
