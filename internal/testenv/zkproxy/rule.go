package zkproxy

// Faults at a certain request.

import (
	"context"
	"slices"
	"sync"
)

// Action is what a [Rule] does.
type Action int

const (
	// CutBeforeRequest closes the connection instead of forwarding the
	// request: it is not applied, and the client cannot know.
	CutBeforeRequest Action = iota + 1
	// CutAfterApplied forwards the request, waits for its reply, and closes
	// the connection instead of passing the reply on: it is applied, and the
	// client cannot know.
	CutAfterApplied
	// DropReplyBlackhole does the same, but leaves the connection open as a
	// black hole in both directions, until the client gives it up, the rule is
	// released, or [Proxy.DropConnections].
	DropReplyBlackhole
	// HoldReply forwards the request and holds its reply, and all that comes
	// after it on the connection, until the rule is released.
	HoldReply
)

// Rule says at which request to do what. It applies once.
type Rule struct {
	// Op is the operation code to match. OpAny, zero, matches every request
	// but the handshake and pings, which clients send at moments of their own.
	Op int32
	// K is which of the matching requests is meant, counted from 1 over all
	// connections, beginning when the rule is set. Zero means 1.
	K int
	// Path, if set, must accept the path of the request: the first string of
	// its body, for a multi that of its first operation, and "" for requests
	// without one. It must not call the Proxy.
	Path func(path string) bool
	// Action is what happens.
	Action Action
}

// Handle is a rule that has been set.
type Handle struct {
	proxy *Proxy
	rule  Rule

	seen int // matches so far

	done     chan struct{}
	doneOnce sync.Once

	// release ends when the rule is released; cancel ends it.
	release context.Context
	cancel  context.CancelFunc
}

// On sets a rule. Where several match, the one that was set first applies.
func (p *Proxy) On(rule Rule) *Handle {
	h := &Handle{proxy: p, rule: rule, done: make(chan struct{})}
	h.rule.K = max(1, rule.K)
	h.release, h.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, h)
	return h
}

// Done is closed when the rule has fired: for CutBeforeRequest when the
// connection is closed, for the others when the reply has come from the
// server, so that the request is applied, and the connection is as the action
// says. It stays open when the connection breaks before.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Release lets a held reply go, and closes the connection that
// DropReplyBlackhole has left open. Before the rule has met its request,
// Release withdraws it. Calling it again does nothing.
func (h *Handle) Release() {
	h.proxy.mu.Lock()
	defer h.proxy.mu.Unlock()
	h.proxy.forget(h)
	h.cancel()
}

func (h *Handle) fire() { h.doneOnce.Do(func() { close(h.done) }) }

// match finds the rule for a request that is about to be forwarded, and uses
// it up.
func (p *Proxy) match(op int32, path string) *Handle {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found *Handle
	for _, h := range p.rules {
		if !h.rule.matches(op, path) {
			continue
		}
		h.seen++
		if found == nil && h.seen >= h.rule.K {
			found = h
		}
	}
	if found != nil {
		p.forget(found)
	}
	return found
}

// forget takes a rule off the list; the lock is held.
func (p *Proxy) forget(h *Handle) {
	p.rules = slices.DeleteFunc(p.rules, func(other *Handle) bool { return other == h })
}

func (r Rule) matches(op int32, path string) bool {
	if r.Op == OpAny {
		if op == OpConnect || op == OpPing {
			return false
		}
	} else if r.Op != op {
		return false
	}
	return r.Path == nil || r.Path(path)
}
