package leaderelection

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/grant"
)

// Leadership is the grant of one leadership to one candidate. It is a value to
// pass on: to the goroutines that act while leading, to the systems that check
// its token. Its methods may be called from any goroutine.
//
// It guarantees that Done is closed before another candidate can lead, as far
// as clocks run at the same rate and this process runs at all. A process that
// was stopped between a look at Done and the act that follows can still act too
// late. What must never happen twice is therefore guarded where it happens: by
// a system that refuses tokens smaller than the greatest it has seen, or, in
// ZooKeeper itself, by [Leadership.Multi].
type Leadership struct {
	grant *grant.Grant
	multi func(ops []any) ([]zk.MultiResponse, error) // nil except on ZooKeeper
}

// NewLeadership returns a grant and the function that ends it with a reason,
// which may be called repeatedly: the first reason stays. It is for
// implementations of [Candidate]. deadline says until when leadership is
// proven, each time anew, and must not call methods of the grant; nil, or a
// zero time from the start, stands for no limit.
func NewLeadership(token int64, deadline func() time.Time) (*Leadership, context.CancelCauseFunc) {
	g, end := grant.New(token, deadline)
	return &Leadership{grant: g}, end
}

// Token is the fencing token: of two leaderships of one election the later has
// the greater token. A leadership that was suspended and proven again keeps
// its token. On ZooKeeper it is the creation zxid of the candidate's znode,
// which grows over the life of an ensemble and starts anew when the ensemble
// is rebuilt without its data.
//
// A resource is protected by the tokens of one election. Tokens of different elections,
// locks, queues or parts must not be compared, although all are zxids: a greater one
// says nothing there, and a record that both are checked against rejects the holder of
// the smaller one. Keep a record for each, for instance under the path of its node.
func (l *Leadership) Token() int64 { return l.grant.Token() }

// Done is closed, once, as soon as leadership is lost or can no longer be
// proven.
func (l *Leadership) Done() <-chan struct{} { return l.grant.Context().Done() }

// Err is nil while leadership is proven, and afterwards why it ended:
// [ErrResigned], [ErrLeaseExpired], [ErrSessionExpired], [ErrCandidateDeleted],
// [ErrElectionOver] or [ErrConnClosed], for errors.Is. It asks the clock, so
// that it is right even when this process has only just been resumed.
func (l *Leadership) Err() error { return l.grant.Err() }

// Deadline is until when leadership is proven at this moment. It moves forward
// while the leadership lasts, and stays where it was when the leadership ends.
// The zero time stands for no limit.
func (l *Leadership) Deadline() time.Time { return l.grant.Deadline() }

// Context is done when the leadership is; its cause is what Err returns.
func (l *Leadership) Context() context.Context { return l.grant.Context() }

// Multi carries out ops as one ZooKeeper transaction that commits only while this
// leadership lasts: the transaction begins with a check of the candidate's znode. It is
// for leaderships of an [Election]. That of another implementation returns
// [errors.ErrUnsupported]: see there how its writes are guarded. All else is as with
// [Election.Multi], which serves whichever leadership the candidate has.
func (l *Leadership) Multi(ops ...any) ([]zk.MultiResponse, error) {
	if l.multi == nil {
		return nil, errors.ErrUnsupported
	}
	return l.multi(ops)
}
