package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// run applies the completion, and returns its result, or ErrUnconfirmed after a limited time. If an earlier
// call for the same items has returned ErrUnconfirmed, run returns the result of that call instead, unless
// that call has failed because another call was faster.
func (c *completion) run() error {
	// Completions that have items in common lock them in the same order, so that no two of them wait for each
	// other. Claims of one request have the same token.
	slices.SortFunc(c.items, func(a, b *delivery) int {
		return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.name, b.name))
	})
	c.call = slices.Clone(c.items)
	end := time.Now().Add(limit.Confirm)
	r := c.findLate()
	for r != nil && limit.Await(r.done, end) && errors.Is(r.err, errSettled) {
		r.removeLate()
		r = c.findLate()
	}
	if r == nil {
		r = c
		c.start()
	}
	if !limit.Await(r.done, end) {
		r.addLate()
		return fmt.Errorf("%w: %w", connection.ErrUnconfirmed, limit.ErrConfirm)
	}
	r.removeLate()
	return r.err
}

// start applies the completion in a new goroutine.
func (c *completion) start() {
	c.done = make(chan struct{})
	open := c.q.startCall() == nil // if the queue is closed, the deliveries have ended, and apply sends nothing
	go func() {
		if open {
			defer c.q.running.Done()
		}
		defer close(c.done)
		c.err = c.apply()
		c.reportEnds()
	}()
}

// findLate returns an earlier completion of the same kind and the same items whose result no call has returned
// yet, or nil. A call with operations of the user does not return the result of a completion without them.
func (c *completion) findLate() *completion {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	for _, r := range c.call[0].late {
		if r.as == c.as && (r.alone || !c.alone) && slices.Equal(r.call, c.call) {
			return r
		}
	}
	return nil
}

// addLate stores the completion, which continues in the background, until a call returns its result.
func (c *completion) addLate() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if first := c.call[0]; !slices.Contains(first.late, c) {
		first.late = append(first.late, c)
	}
}

// removeLate removes the completion after a call has returned its result.
func (c *completion) removeLate() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	first := c.call[0]
	first.late = slices.DeleteFunc(first.late, func(other *completion) bool { return other == c })
}
