package connection

import (
	"context"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// Grant is the common part of leaderships and holds of locks: a fencing token, a lease that the clock ends, and a
// context that is done when the grant ends. The methods of a Grant may be called from any goroutine.
type Grant struct {
	token    int64
	deadline func() time.Time
	sub      *Subscription // nil unless Subscription.Grant has returned the grant
	ctx      context.Context
	end      context.CancelCauseFunc

	mu     sync.Mutex
	latest time.Time // the newest known deadline; it does not change after the grant has ended
}

// NewGrant returns a grant. deadline returns when the lease currently expires, and must not call methods of the
// grant. If deadline is nil, or returns the zero time at the start, the lease is unlimited.
func NewGrant(token int64, deadline func() time.Time) *Grant {
	ctx, end := context.WithCancelCause(context.Background())
	if deadline == nil {
		deadline = func() time.Time { return time.Time{} }
	}
	return &Grant{token: token, deadline: deadline, ctx: ctx, end: end, latest: deadline()}
}

// Grant returns a grant that lasts at most as long as the lease of the session, and ends before the owner of the
// connection ends the session.
func (s *Subscription) Grant(token int64) *Grant {
	g := NewGrant(token, s.Deadline)
	if g.latest.IsZero() {
		g.latest = time.Unix(0, 0) // the lease has ended before this call; the zero time would mean that it is unlimited
	}
	g.sub = s
	s.EndOnClose(g.end)
	return g
}

// EndOnClose arranges that Close of the connection first ends g and then calls the function also. It does nothing
// unless Subscription.Grant has returned g.
func (g *Grant) EndOnClose(also context.CancelCauseFunc) {
	if g.sub != nil {
		g.sub.EndOnClose(func(err error) {
			g.end(err)
			also(err)
		})
	}
}

// End ends the grant for a reason. If the grant has ended before, its first reason remains.
func (g *Grant) End(reason error) { g.end(reason) }

// Token returns the fencing token, which is greater than the tokens of all earlier grants.
func (g *Grant) Token() int64 { return g.token }

// Context returns a context that is done when the grant ends. Its cause is the error of Err.
func (g *Grant) Context() context.Context { return g.ctx }

// Err returns nil while the lease is valid, and afterwards the reason why the grant has ended. Err compares the
// deadline with the clock, so its result is correct even if the process was suspended until the call.
func (g *Grant) Err() error {
	if g.ctx.Err() == nil {
		// Read the clock before the deadline: a renewal in between then cannot make the grant seem expired.
		now := time.Now()
		if d := g.Deadline(); !d.IsZero() && limit.Expired(d, now) {
			g.end(ErrLeaseExpired)
		}
	}
	if g.ctx.Err() == nil {
		return nil
	}
	return context.Cause(g.ctx)
}

// Deadline returns when the lease currently expires; the zero time means that it does not expire. After the end of
// the grant, Deadline returns the last deadline before the end.
func (g *Grant) Deadline() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() == nil {
		if d := g.deadline(); !d.IsZero() {
			g.latest = d
		}
	}
	return g.latest
}
