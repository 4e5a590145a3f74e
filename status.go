package leaderelection

import (
	"fmt"
	"strings"
)

// Role is the current role of a candidate in its election. The zero value is Follower. Only
// a candidate whose Role is Leader may act as the leader.
type Role int

const (
	// Follower is the role of a candidate that is not the leader.
	Follower Role = iota
	// Leader is the role of the leader. Status.Leadership represents it.
	Leader
	// Suspended is the role of a leader whose lease has expired. It must not act as the
	// leader. It becomes Leader again, with the same token, or Follower, or its candidacy
	// ends.
	Suspended
)

// String returns the name of the role in lower case.
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

// Status is the state of a candidate as delivered by [Candidate.Status].
type Status struct {
	// CandidateID is the candidate's ID. It is empty before the candidate has joined.
	CandidateID string
	// Role is the candidate's current role.
	Role Role
	// NowFollowing is the ID of the candidate's immediate predecessor, for whose departure
	// it waits. The predecessor is not necessarily the leader. NowFollowing is empty for a
	// leader, and while the predecessor is unknown.
	NowFollowing string
	// WasFollowing is the NowFollowing of the previous status.
	WasFollowing string
	// Err is the error that ended the candidacy. It is set only in the final status.
	Err error
	// Leadership is non-nil if and only if Role is Leader. A leader that was suspended and
	// resumed has a new Leadership with the same token.
	Leadership *Leadership
}

// String returns a description for logs.
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
