package connection

import (
	"context"
	"log/slog"
	"time"
)

// Work returns a context for a function that works during a grant. The context is derived from the context of the
// grant, so that both end in the same step. It also ends with the context of the caller, and has the values and the
// deadline of that context. end must be called after the function has returned, or to interrupt the function with a
// cause.
func Work(granted, caller context.Context) (ctx context.Context, end context.CancelCauseFunc) {
	work, cancel := context.WithCancelCause(granted)
	unlink := context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
	return workContext{work, caller}, func(cause error) {
		unlink()
		cancel(cause)
	}
}

type workContext struct {
	context.Context
	caller context.Context
}

func (c workContext) Deadline() (time.Time, bool) { return c.caller.Deadline() }

func (c workContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.caller.Value(key)
}

// These variables are functions of the root package, for packages candidacy and migration. Only implementations of
// Candidate need them, so the root package sets the variables instead of exporting functions.
var (
	// NewCandidacy returns a new candidacy.Candidacy. Its type is any because package candidacy imports this
	// package.
	NewCandidacy func(ctx context.Context, log *slog.Logger) any
	// NewLeadership returns a new *leaderelection.Leadership and the function that ends this leadership.
	NewLeadership func(token int64, deadline func() time.Time) (leadership any, end context.CancelCauseFunc)
	// EndOnClose makes whole, a *leaderelection.Leadership, end in the same step as part, the leadership that whole
	// depends on, when the owner closes the connection.
	EndOnClose func(part, whole any)
)
