package raftlog

// This file lets a program request the candidate of another program to resign, so that the other
// program can end its work first. The request is not in the log: the client keeps a call at the
// candidate's peer in progress until the candidate has left.

import (
	"context"
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// ResignRequested returns a channel that is closed when a client requests this candidate's resignation
// (RequestResign of package client). The request has no other effect: a leader should stop its work and
// then call Resign. The channel is not closed when the candidacy ends, so callers should also wait
// until the candidacy is over. A request that was made before the call of ResignRequested is noticed if
// its client still waits.
func (e *Election) ResignRequested() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resignRequested == nil {
		e.resignRequested = make(chan struct{})
	}
	e.notifyRequested()
	return e.resignRequested
}

// notifyRequested closes the channel of ResignRequested if there are requests to resign. The caller holds mu.
func (e *Election) notifyRequested() {
	if e.resignRequests == 0 || e.resignRequested == nil {
		return
	}
	select {
	case <-e.resignRequested:
	default:
		close(e.resignRequested)
	}
}

// addResignRequest adds a request to resign, and returns a function that withdraws it.
func (e *Election) addResignRequest() (withdraw func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resignRequests++
	e.notifyRequested()
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.resignRequests--
	}
}

// findCandidate returns the candidate of this node with the given ID in the election with the given name, or
// nil if there is none.
func (n *Node) findCandidate(name, id string) *Election {
	n.mu.Lock()
	defer n.mu.Unlock()
	for e := range n.elections {
		if e.name == name && e.ID() == id {
			return e
		}
	}
	return nil
}

// RequestResign implements [rpc.Service].
func (s service) RequestResign(ctx context.Context, name, candidate string) error {
	e := s.node.findCandidate(name, candidate)
	if e == nil {
		return fmt.Errorf("%w: %s in election %q, at peer %s", api.ErrNoCandidate, candidate, name, s.node.cfg.ID)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	defer e.addResignRequest()()
	select {
	case <-e.candidacy.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
