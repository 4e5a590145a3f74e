package console

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-leaderelection/leaderelection"
)

// Candidate is a candidate whose role is set by the commands of a [Console]. It
// implements [leaderelection.Candidate].
type Candidate struct {
	console *Console
	id      string
	feed    *leaderelection.StatusFeed
	over    chan struct{}

	mu      sync.Mutex
	started bool
	err     error // what has ended the candidacy; nil after Resign
	l       *leaderelection.Leadership
	revoke  context.CancelCauseFunc
}

var _ leaderelection.Candidate = (*Candidate)(nil)

// Candidate creates a candidate. If several candidates have joined, each line is received
// by one of them.
func (c *Console) Candidate(id string) *Candidate {
	return &Candidate{console: c, id: id, feed: leaderelection.NewStatusFeed(), over: make(chan struct{})}
}

// ID implements [leaderelection.Candidate].
func (c *Candidate) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return ""
	}
	return c.id
}

// Status implements [leaderelection.Candidate].
func (c *Candidate) Status() <-chan leaderelection.Status { return c.feed.C() }

// Current implements [leaderelection.Candidate].
func (c *Candidate) Current() leaderelection.Status { return c.feed.Current() }

// ElectLeader implements [leaderelection.Candidate]. The error is [ErrTyped] or
// [ErrEndOfInput], or nil after Resign.
func (c *Candidate) ElectLeader() error {
	c.mu.Lock()
	switch {
	case c.isOver():
		c.mu.Unlock()
		return leaderelection.ErrCandidacyOver
	case c.started:
		c.mu.Unlock()
		return leaderelection.ErrAlreadyStarted
	}
	c.started = true
	c.feed.Publish(leaderelection.Status{CandidateID: c.id})
	c.mu.Unlock()
	c.console.start()
	for {
		select {
		case line := <-c.console.lines:
			c.hear(c.console.understand(line))
		case <-c.console.ended:
			c.finish(c.console.end())
		case <-c.console.closed:
			c.finish(c.console.end())
		case <-c.over:
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.err
		}
	}
}

func (c *Candidate) isOver() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

func (c *Candidate) hear(word string, token int64) {
	switch word {
	case "LEADER":
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.isOver() || c.l != nil {
			return
		}
		c.console.used(token)
		c.l, c.revoke = leaderelection.NewLeadership(token, nil)
		c.feed.Publish(leaderelection.Status{CandidateID: c.id, Role: leaderelection.Leader, Leadership: c.l})
	case "NOTLEADER":
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.isOver() || c.l == nil {
			return
		}
		c.lose(ErrNotLeader)
		c.feed.Publish(leaderelection.Status{CandidateID: c.id})
	case "ERROR":
		c.finish(ErrTyped)
	}
}

// lose ends the leadership, if there is one. mu is held.
func (c *Candidate) lose(reason error) {
	if c.l != nil {
		c.revoke(reason)
		c.l, c.revoke = nil, nil
	}
}

// finish ends the candidacy, if that has not been done; nil stands for Resign.
func (c *Candidate) finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOver() {
		return
	}
	if c.err = err; err == nil {
		c.lose(leaderelection.ErrResigned)
		c.feed.Withdraw()
	} else {
		c.lose(err)
		c.feed.Finish(leaderelection.Status{CandidateID: c.id, Err: err})
	}
	close(c.over)
}

// Resign implements [leaderelection.Candidate]. It does not block, and returns nil.
func (c *Candidate) Resign() error {
	c.finish(nil)
	return nil
}

// EndElection returns an error that wraps [errors.ErrUnsupported] and changes nothing,
// because a console does not know the other candidates.
func (c *Candidate) EndElection() error {
	return fmt.Errorf("console: end of election: %w", errors.ErrUnsupported)
}
