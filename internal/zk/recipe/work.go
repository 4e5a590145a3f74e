package recipe

import (
	"context"
	"time"
)

// Work returns the context of a function that works during a grant. It is derived from the context of the grant,
// so that it ends in the same step, and ends with the caller's context as well, of which it has the values and the
// deadline. done must be called after the function has returned.
func Work(granted, caller context.Context) (ctx context.Context, done func()) {
	work, end := context.WithCancelCause(granted)
	stop := context.AfterFunc(caller, func() { end(context.Cause(caller)) })
	return workContext{work, caller}, func() {
		stop()
		end(nil)
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
