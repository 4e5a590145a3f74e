// Package closing has the calls of a store end with the store.
package closing

import (
	"context"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Begin is at the beginning of every method of a store: the context that it returns ends
// with ctx and with closed, whichever is first, and end gives it up. The error is
// changefeed.ErrClosed when closed has ended already, and else that of ctx.
func Begin(ctx, closed context.Context) (both context.Context, end func(), err error) {
	if closed.Err() != nil {
		return nil, nil, changefeed.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	both, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(closed, cancel)
	return both, func() { stop(); cancel() }, nil
}
