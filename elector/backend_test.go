package elector

import (
	"context"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// backend makes candidates that are told by the test what they are.
type backend struct {
	mu    sync.Mutex
	token int64
	lease time.Duration // of leaderships, whose end nothing tells of
	made  []*scripted
	fail  []error // what newCandidate returns first; nil makes a candidate
}

func (b *backend) newCandidate(context.Context) (leaderelection.Candidate, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.fail) > 0 {
		err := b.fail[0]
		b.fail = b.fail[1:]
		if err != nil {
			return nil, err
		}
	}
	c := &scripted{Candidacy: leaderelection.NewCandidacy(context.Background(), nil), backend: b, asked: make(chan struct{}), fault: make(chan error)}
	c.SetID("scripted")
	b.made = append(b.made, c)
	return c, nil
}

// candidates is how many were made.
func (b *backend) candidates() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.made)
}

// now is the candidate that was made last.
func (b *backend) now() *scripted {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made[len(b.made)-1]
}

// leads tells the newest candidate that it leads, with the next token.
func (b *backend) leads() *leaderelection.Leadership { return b.now().leads() }

// scripted is a candidate that is told by the test what it is.
type scripted struct {
	*leaderelection.Candidacy
	backend *backend
	stuck   chan struct{} // Resign waits for it if it is not nil
	asked   chan struct{} // closed when asked to resign
	resign  error         // what Resign returns
	fault   chan error    // what ElectLeader returns without a final status

	mu     sync.Mutex
	closed int // by Close
}

var _ leaderelection.Candidate = (*scripted)(nil)

func (c *scripted) EndElection() error { c.fails(leaderelection.ErrElectionOver); return nil }

func (c *scripted) ResignRequested() <-chan struct{} { return c.asked }

func (c *scripted) ElectLeader() error {
	select {
	case <-c.Done():
		return c.Finish(nil) // the reason of the first call
	case err := <-c.fault:
		return err
	}
}

func (c *scripted) leads() *leaderelection.Leadership {
	c.backend.mu.Lock()
	c.backend.token++
	var deadline func() time.Time
	if lease := c.backend.lease; lease > 0 {
		until := time.Now().Add(lease)
		deadline = func() time.Time { return until }
	}
	token := c.backend.token
	c.backend.mu.Unlock()
	return c.Lead(token, deadline)
}

// loses ends the leadership, if there is one, and says nothing.
func (c *scripted) loses(reason error) { c.Revoke(reason) }

// follows is NOTLEADER.
func (c *scripted) follows() {
	c.loses(leaderelection.ErrLeaseExpired)
	c.tells(leaderelection.Status{Role: leaderelection.Suspended})
}

func (c *scripted) tells(s leaderelection.Status) { c.Publish(s) }

// fails is ERROR: the candidacy ends with a final status.
func (c *scripted) fails(err error) { _ = c.Finish(err) }

func (c *scripted) Resign() error {
	if c.stuck != nil {
		<-c.stuck
	}
	_ = c.Finish(leaderelection.ErrResigned)
	return c.resign
}

func (c *scripted) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	return nil
}

// holds reports whether the candidate takes part.
func (c *scripted) holds() bool {
	select {
	case <-c.Done():
		return false
	default:
		return true
	}
}
