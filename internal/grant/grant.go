// Package grant is what a leadership and a lock have in common once they are
// given: a fencing token, a lease that is read off the clock, and one end.
package grant

import (
	"context"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Grant is one grant. Its methods may be called from any goroutine.
type Grant struct {
	token    int64
	deadline func() time.Time
	ctx      context.Context
	end      context.CancelCauseFunc

	mu     sync.Mutex
	latest time.Time // the last deadline while it lasted
}

// New returns a grant and the function that ends it with a reason; the first
// reason stays. deadline says until when the grant is proven, each time anew,
// and must not call methods of the grant; nil, or a zero time from the start,
// stands for no limit.
func New(token int64, deadline func() time.Time) (*Grant, context.CancelCauseFunc) {
	ctx, end := context.WithCancelCause(context.Background())
	if deadline == nil {
		deadline = func() time.Time { return time.Time{} }
	}
	return &Grant{token: token, deadline: deadline, ctx: ctx, end: end, latest: deadline()}, end
}

// Token is the fencing token.
func (g *Grant) Token() int64 { return g.token }

// Context is done when the grant ends; its cause is what Err returns.
func (g *Grant) Context() context.Context { return g.ctx }

// Err is nil while the grant is proven, and afterwards why it ended. It asks the
// clock, so that it is right even when this process has only just been resumed.
func (g *Grant) Err() error {
	if g.ctx.Err() == nil {
		// The clock first: a deadline read after it and before it has lapsed
		// for certain, whatever is proven meanwhile.
		now := time.Now()
		if d := g.Deadline(); !d.IsZero() && session.Expired(d, now) {
			g.end(zkerror.ErrLeaseExpired)
		}
	}
	if g.ctx.Err() == nil {
		return nil
	}
	return context.Cause(g.ctx)
}

// Deadline is until when the grant is proven at this moment. It moves forward
// while the grant lasts, and stays where it was when it ends. The zero time
// stands for no limit.
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
