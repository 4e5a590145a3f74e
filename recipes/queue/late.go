package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// run applies the completion, and returns its result, or ErrUnconfirmed if it takes too long. If an
// earlier call for the same items has taken too long, run returns the result of that call instead,
// unless the result is that a third call was faster.
func (c *completion) run() error {
	// Completions that have items in common must not wait for each other, so all wait in the same
	// order. Claims of one request have the same token.
	slices.SortFunc(c.items, func(a, b *delivery) int {
		return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.name, b.name))
	})
	end := time.Now().Add(limit.Confirm)
	r := c.findLate()
	for r != nil && limit.Await(r.done, end) && errors.Is(r.err, ErrSettled) {
		r.removeLate()
		r = c.findLate()
	}
	if r == nil {
		r = c.start()
	}
	if !limit.Await(r.done, end) {
		r.addLate()
		return fmt.Errorf("%w: %w", zkerror.ErrUnconfirmed, limit.ErrConfirm)
	}
	r.removeLate()
	return r.err
}

// completionResult is the result of a completion.
type completionResult struct {
	as      error
	items   []*delivery // of the call, in the order of run
	withOps bool        // the user has passed operations
	done    chan struct{}
	err     error // set before done is closed
}

// start applies the completion in the background.
func (c *completion) start() *completionResult {
	r := &completionResult{as: c.as, items: slices.Clone(c.items), withOps: c.alone, done: make(chan struct{})}
	open := c.q.startCall() == nil // otherwise the deliveries have ended, and apply sends nothing
	go func() {
		if open {
			defer c.q.running.Done()
		}
		defer close(r.done)
		r.err = c.apply()
	}()
	return r
}

// findLate returns the result of an earlier completion of the same kind and the same items that no
// call has returned yet, or nil. A call with operations does not return the result of a completion
// without the operations of the user.
func (c *completion) findLate() *completionResult {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	for _, r := range c.items[0].late {
		if r.as == c.as && (r.withOps || !c.alone) && slices.Equal(r.items, c.items) {
			return r
		}
	}
	return nil
}

// addLate keeps the result until a call returns it.
func (r *completionResult) addLate() {
	first := r.items[0]
	first.q.mu.Lock()
	defer first.q.mu.Unlock()
	if !slices.Contains(first.late, r) {
		first.late = append(first.late, r)
	}
}

func (r *completionResult) removeLate() {
	first := r.items[0]
	first.q.mu.Lock()
	defer first.q.mu.Unlock()
	first.late = slices.DeleteFunc(first.late, func(other *completionResult) bool { return other == r })
}
