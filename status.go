package leaderelection

import (
	"fmt"
	"strings"
)

// Role is what a candidate is in its election at a moment. The zero value is
// Follower. Whoever acts only while the Role is Leader is safe.
type Role int

const (
	// Follower is not the leader.
	Follower Role = iota
	// Leader is the leader, proven as Status.Leadership says.
	Leader
	// Suspended was leader and cannot prove at this moment that it still is,
	// so it must not act as one. It becomes Leader again, with the same token,
	// or Follower, or the candidacy ends.
	Suspended
)

func (r Role) String() string {
	switch r {
	case Follower:
		return "follower"
	case Leader:
		return "leader"
	case Suspended:
		return "suspended"
	}
	return fmt.Sprintf("Role(%d)", int(r))
}

// Status is a candidate's situation as delivered by [Candidate.Status].
type Status struct {
	// CandidateID is the candidate's ID; empty when it does not take part yet.
	CandidateID string
	Role        Role
	// NowFollowing is the ID of the candidate whose departure this one waits
	// for: its immediate predecessor in line, not necessarily the leader.
	// Empty for a leader and for a candidate that does not know yet.
	NowFollowing string
	// WasFollowing is what NowFollowing was in the previous status.
	WasFollowing string
	// Err is set in the final status only: what ended the candidacy.
	Err error
	// Leadership is the grant; it is non-nil exactly while Role is Leader.
	// After a time as Suspended it is a new one with the same token.
	Leadership *Leadership
}

func (s Status) String() string {
	var b strings.Builder
	b.WriteString(s.Role.String())
	if s.CandidateID != "" {
		fmt.Fprintf(&b, " %s", s.CandidateID)
	}
	if s.Leadership != nil {
		fmt.Fprintf(&b, " token %d", s.Leadership.Token())
	}
	if s.NowFollowing != "" {
		fmt.Fprintf(&b, " following %s", s.NowFollowing)
	}
	if s.WasFollowing != "" {
		fmt.Fprintf(&b, " (was following %s)", s.WasFollowing)
	}
	if s.Err != nil {
		fmt.Fprintf(&b, ": %v", s.Err)
	}
	return b.String()
}
