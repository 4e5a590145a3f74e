package zkproxy

import (
	"context"
	"slices"
	"sync"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// Action is the fault that a [Rule] injects.
type Action int

const (
	// CutBeforeRequest closes the connection instead of forwarding the request. The server does not apply the
	// request, which the client cannot know.
	CutBeforeRequest Action = iota + 1
	// CutAfterApplied forwards the request, waits for its reply, and closes the connection instead of forwarding
	// the reply. The server has applied the request, which the client cannot know.
	CutAfterApplied
	// DropReplyBlackhole forwards the request and drops its reply. The connection remains open as a black hole in
	// both directions, until the client closes the connection, or the test calls Release of the rule or
	// DropConnections.
	DropReplyBlackhole
	// HoldReply forwards the request, and delays its reply and all later messages to the client until Release of
	// the rule is called.
	HoldReply
)

// Rule injects a fault at one request.
type Rule struct {
	// Op is the operation of the request. The zero value, OpAny, matches every request except handshakes and pings,
	// which clients send on their own.
	Op wire.Op
	// K selects one of the matching requests, counted from 1 over all connections since the rule
	// was set. 0 means 1.
	K int
	// Path, if it is not nil, must return true for the path of the request: the first string of the body, or of the
	// first operation of a multi. The path is empty for requests without a path. The function must not call the
	// Proxy.
	Path func(path string) bool
	// Action is the fault that the rule injects at the selected request.
	Action Action
}

// Handle is a rule that On has set.
type Handle struct {
	proxy *Proxy
	rule  Rule

	seen int // number of matching requests so far

	done     chan struct{}
	doneOnce sync.Once

	// released is done when Release is called, which calls cancel.
	released context.Context
	cancel   context.CancelFunc
}

// On sets a rule. If several rules match a request, the rule that was set first applies.
func (p *Proxy) On(rule Rule) *Handle {
	h := &Handle{proxy: p, rule: rule, done: make(chan struct{})}
	h.rule.K = max(1, rule.K)
	h.released, h.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, h)
	return h
}

// Done returns a channel that is closed when the proxy has applied the rule: for CutBeforeRequest when the proxy
// has closed the connection, and for other actions when the server has replied, so that the request is applied. If
// the connection breaks earlier, the channel is never closed.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Release forwards the reply that HoldReply delays, and closes the connection that DropReplyBlackhole has left
// open. If the rule has not matched a request yet, Release removes the rule. Further calls do nothing.
func (h *Handle) Release() {
	h.proxy.mu.Lock()
	defer h.proxy.mu.Unlock()
	h.proxy.removeRule(h)
	h.cancel()
}

func (h *Handle) markApplied() { h.doneOnce.Do(func() { close(h.done) }) }

// takeRule removes and returns the first rule that applies to a request. It returns nil if no rule applies.
func (p *Proxy) takeRule(op wire.Op, path string) *Handle {
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
		p.removeRule(found)
	}
	return found
}

// removeRule removes a rule. The caller holds mu.
func (p *Proxy) removeRule(h *Handle) {
	p.rules = slices.DeleteFunc(p.rules, func(other *Handle) bool { return other == h })
}

func (r Rule) matches(op wire.Op, path string) bool {
	if r.Op == OpAny {
		if op == wire.Connect || op == wire.Ping {
			return false
		}
	} else if r.Op != op {
		return false
	}
	return r.Path == nil || r.Path(path)
}
