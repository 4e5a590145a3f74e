package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
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
	// Next reports that this is the next candidate: NowFollowing, which leads or will lead first, is the only
	// candidate ahead of it. A program can prepare for its leadership then, for instance load its caches. Next
	// is true only after the candidate has seen that no other candidate is ahead of it, which can take some time.
	// Next promises no leadership, because the candidacy may end before. Each change of Next is delivered as a
	// status.
	//
	// On ZooKeeper, candidates learn that they are next from the listings that they request in any case. Next stays
	// true while the connection is down. If names contain no GUID ([WithNamePrefix]), a candidate may learn only
	// when it joins whether it is next. Other implementations of [Candidate] describe Next at their method Status.
	// Next is always false if candidates are not ordered.
	Next bool
	// FormerErr is, in the status of a leader, how the previous leadership ended, if the backend records
	// that: [ErrResigned] if the former leader gave it up after Done was closed, and [ErrLeaseExpired] if it
	// crashed or was cut off, so that its work may be incomplete. Otherwise it is nil. It is always nil on
	// ZooKeeper and etcd, whose events do not show why a candidate has left.
	FormerErr error
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
	if s.Next {
		b.WriteString(" (next)")
	}
	if s.WasFollowing != "" {
		fmt.Fprintf(&b, " (was following %s)", s.WasFollowing)
	}
	if s.FormerErr != nil {
		fmt.Fprintf(&b, " (former leader: %v)", s.FormerErr)
	}
	if s.Err != nil {
		fmt.Fprintf(&b, ": %v", s.Err)
	}
	return b.String()
}

// Leadership represents one term of one candidate as the leader. It can be passed to
// goroutines that act as leader and to systems that check its token. Its methods may be
// called from any goroutine.
//
// Done is closed before another candidate can become leader, provided that clocks run at
// the same rate and that this process is not stopped. If the program closes the connection
// itself, this holds for connections of package zkdial; on a connection that zk.Connect has
// opened, resign first. A process that is stopped between a check of Done and the following
// action can still act too late. Operations that must not overlap should therefore be
// protected in the system that executes them: it can reject tokens smaller than the greatest
// it has seen, or in ZooKeeper by [Leadership.Multi].
type Leadership struct {
	grant *connection.Grant
	multi func(*Leadership, []any) ([]zk.MultiResponse, error) // nil except on ZooKeeper
}

// newLeadership implements candidacy.NewLeadership: it returns a Leadership and a function that ends the
// Leadership.
func newLeadership(token int64, deadline func() time.Time) (*Leadership, context.CancelCauseFunc) {
	g := connection.NewGrant(token, deadline)
	return &Leadership{grant: g}, g.End
}

// Token returns the fencing token. Of two leaderships of an election the later one has the
// greater token. A leadership that was suspended and resumed keeps its token. On ZooKeeper
// the token is the creation zxid of the candidate's znode. Zxids increase during the life
// of an ensemble, and restart if the ensemble is rebuilt without its data.
//
// A resource can reject the writes of a former leader only after it has seen the token of
// the new one. So send the token to the resource before you read anything that you will
// write: docs/tasks/fencing.md shows the statements in SQL.
//
// Only tokens of the same election may be compared. Tokens of different elections, locks,
// queues or partitions are unrelated, although all are zxids: if one record is checked
// against both, it rejects the holder of the smaller token. Keep a separate record for
// each, for instance keyed by the path of the election node.
func (l *Leadership) Token() int64 { return l.grant.Token() }

// Done returns a channel that is closed when leadership is lost or the lease has expired.
// The status [Suspended], or the final status, follows.
func (l *Leadership) Done() <-chan struct{} { return l.grant.Context().Done() }

// Err returns nil while the lease is valid, and afterwards the reason why the leadership ended. On
// ZooKeeper it is [ErrResigned], [ErrLeaseExpired], [ErrSessionExpired], [ErrDeleted],
// [ErrElectionOver] or [ErrConnClosed], to be tested with errors.Is. Err compares the lease with
// the clock, so it is accurate even if this process has just been resumed.
func (l *Leadership) Err() error { return l.grant.Err() }

// Deadline returns the time at which the lease expires unless it is renewed. It increases
// while the leadership lasts, and does not change after the leadership has ended. The zero
// time means that it is unlimited.
func (l *Leadership) Deadline() time.Time { return l.grant.Deadline() }

// Context returns a context that is done when the leadership ends. Its cause is the error
// that Err returns.
func (l *Leadership) Context() context.Context { return l.grant.Context() }

// Multi executes ops as one ZooKeeper transaction that commits only during this leadership: the
// transaction begins with a check of the candidate's znode. Nothing is applied after the
// leadership has ended, even if this process was stopped or requests were delayed. A call
// without ops verifies at the ensemble that the leadership lasts. See [WithNamePrefix] for the
// exception if the names contain no random digits.
//
// ops must be *[zk.CreateRequest], *[zk.SetDataRequest], *[zk.DeleteRequest] or
// *[zk.CheckVersionRequest]. The responses correspond to ops. The error wraps
//   - [ErrInvalid] if ops are of another type, or together larger than a server accepts
//     by default (a megabyte); nothing was sent,
//   - [ErrNotLeader] if the leadership has ended; nothing was applied,
//   - [ErrUnconfirmed] if the leadership or the connection was lost during the call, so that
//     the outcome is unknown,
//   - otherwise ZooKeeper's error, and names the index, kind and path of the operation that
//     failed; nothing was applied.
//
// Multi blocks until ZooKeeper answers, but for at most two seconds after the leadership
// ends. Leaderships of implementations of [Candidate] other than [Election] return
// [errors.ErrUnsupported]; their documentation describes how to protect writes.
func (l *Leadership) Multi(ops ...any) ([]zk.MultiResponse, error) {
	if l.multi == nil {
		return nil, fmt.Errorf("transaction as leader: %w: the election is not on ZooKeeper: on etcd, use Election.Txn; elsewhere, let the resource compare Leadership.Token with the greatest token that it has seen", errors.ErrUnsupported)
	}
	return l.multi(l, ops)
}
