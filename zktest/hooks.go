package zktest

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Request describes a request to a hook.
type Request struct {
	Server  *Server
	Session int64
	Op      Op
	// Path is the path of the request. For a multi, a multiRead or a setWatches, it is
	// the first of Paths.
	Path string
	// Paths lists all paths of a multi, a multiRead or a setWatches.
	Paths []string
	Xid   int32

	// Zxid is the zxid of the response. It is set for After hooks only.
	Zxid int64
	// Code is the result, 0 for success. It is set for After hooks only.
	Code Code
	// Created is the path of the znode that a create has made. It is set for After hooks
	// only.
	Created string
}

// Match selects the requests for which a hook runs. A zero field matches any value.
type Match struct {
	Op Op
	// Session is the session of the request. For a handshake it is the session that the
	// client requests, 0 for a new session.
	Session int64
	// Path is the path of the request; if it ends with "*", it is a prefix of the path. A
	// request with several paths (multi, multiRead, setWatches) matches if one of them
	// does.
	Path string
	// Nth selects one of the matching requests, counted from 1 since the hook was set:
	// the hook runs once. If Nth is 0, the hook runs for each matching request.
	Nth int
}

func (m *Match) matches(q *Request) bool {
	if m.Op != OpAny && m.Op != q.Op || m.Session != 0 && m.Session != q.Session {
		return false
	}
	if m.Path == "" {
		return true
	}
	ok := func(p string) bool {
		if prefix, star := strings.CutSuffix(m.Path, "*"); star {
			return strings.HasPrefix(p, prefix)
		}
		return p == m.Path
	}
	return ok(q.Path) || slices.ContainsFunc(q.Paths, ok)
}

// Verdict is the decision of a hook. The zero Verdict lets the request pass. A hook
// function of the test returns the other verdicts by [Cut] and [Fail], as in "return
// zktest.Cut(q)".
type Verdict struct {
	cut, fail bool
	code      Code
}

func (v Verdict) passes() bool { return !v.cut && !v.fail }

// HookFunc decides how the server treats a request. It runs on the goroutine that serves
// the client, without any lock, so it may call every method of the server. It may block:
// the server then delays this request and all later requests of the same client. If it
// does not return, because it calls t.Fatal for example, the server closes the connection.
type HookFunc func(*Request) Verdict

// Pass lets the request, or the answer, pass.
func Pass(*Request) Verdict { return Verdict{} }

// Cut closes the connection. In a Before hook the request is never applied. In an After
// hook it is applied, and the answer is lost. The client cannot distinguish the two.
func Cut(*Request) Verdict { return Verdict{cut: true} }

// Fail returns a hook function that answers with err: a [Code], or an error of package zk
// that corresponds to a code. Any other error becomes Code(-1), "system error". In a
// Before hook the request is not applied. In an After hook it is applied, and the answer
// is wrong. A handshake cannot be answered with an error: its connection is closed
// instead.
func Fail(err error) HookFunc {
	code := codeOf(err)
	return func(*Request) Verdict { return Verdict{fail: true, code: code} }
}

// Hook is a hook that was set by [Server.Before], [Server.After] or [Server.Drop].
type Hook struct {
	set   *hookSet
	stage hookStage
	match Match
	do    HookFunc
	seen  int
	ran   chan struct{}
	once  sync.Once
}

// Ran returns a channel that is closed when the first call of the hook has ended.
func (h *Hook) Ran() <-chan struct{} { return h.ran }

// Remove removes the hook. It does not wait for a call that is in progress.
func (h *Hook) Remove() {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	h.set.removeLocked(h)
}

type hookStage uint8

const (
	beforeStage hookStage = iota
	afterStage
	dropStage
)

type hookSet struct {
	on    atomic.Bool // reports that hooks is not empty; can be read without mu
	mu    sync.Mutex
	hooks []*Hook
}

// hookRun is one hook that must run for the current request.
type hookRun struct{ h *Hook }

func (s *hookSet) addHook(st hookStage, m Match, do HookFunc) *Hook {
	h := &Hook{set: s, stage: st, match: m, do: do, ran: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = append(s.hooks, h)
	s.on.Store(true)
	return h
}

func (s *hookSet) removeLocked(h *Hook) {
	s.hooks = slices.DeleteFunc(s.hooks, func(o *Hook) bool { return o == h })
	s.on.Store(len(s.hooks) > 0)
}

func (s *hookSet) removeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = nil
	s.on.Store(false)
}

// takeDue counts q as a match of each hook of the stage st that q matches, and returns the hooks
// that must run for q.
func (s *hookSet) takeDue(st hookStage, q *Request) []hookRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []hookRun
	for _, h := range slices.Clone(s.hooks) {
		if h.stage != st || !h.match.matches(q) {
			continue
		}
		h.seen++
		if h.match.Nth != 0 && h.seen != h.match.Nth {
			continue
		}
		if h.match.Nth != 0 {
			s.removeLocked(h)
		}
		due = append(due, hookRun{h})
	}
	return due
}

// runHooks calls the hooks in the order in which they were set, and returns the first verdict that
// is not Pass.
func (c *conn) runHooks(due []hookRun, q *Request) Verdict {
	var out Verdict
	if len(due) > 0 {
		c.flushReplies() // send the earlier replies first, because they must not wait for a hook that blocks
	}
	for _, r := range due {
		v := c.callHook(r.h, q)
		if out.passes() {
			out = v
		}
	}
	return out
}

// callHook calls the function of a hook. If the function panics or calls runtime.Goexit, callHook
// closes the connection, because the goroutine that serves the connection ends.
func (c *conn) callHook(h *Hook, q *Request) (v Verdict) {
	returned := false
	defer func() {
		if !returned {
			c.e.mu.Lock()
			c.abort()
			c.e.mu.Unlock()
		}
		h.once.Do(func() { close(h.ran) })
	}()
	v = h.do(q)
	returned = true
	return v
}

// Before sets a hook that runs when a matching request has arrived and before it is
// applied. Hooks apply to the whole ensemble; [Request.Server] is the server that
// received the request.
func (s *Server) Before(m Match, do HookFunc) *Hook { return s.e.hooks.addHook(beforeStage, m, do) }

// After sets a hook that runs when a matching request has been applied and other clients
// can observe its effects, and before it is answered. Hooks apply to the whole ensemble.
func (s *Server) After(m Match, do HookFunc) *Hook { return s.e.hooks.addHook(afterStage, m, do) }

// Drop sets a hook that loses watches. The Op of m is one of these:
//   - [OpNotification]: a matching watch event is not sent, although its watch has fired. Its
//     Session is that of the client that has set the watch.
//   - [OpSetWatches] or [OpSetWatches2]: a matching request is answered, but sets no watches
//     and causes no events.
//
// A real server does neither. Proxies, bugs and clients that fail to set watches again after a
// reconnect have the same effect.
func (s *Server) Drop(m Match) *Hook {
	if m.Op != OpNotification && m.Op != OpSetWatches && m.Op != OpSetWatches2 {
		panic("zktest: Drop: the Op of the match is neither OpNotification nor OpSetWatches")
	}
	return s.e.hooks.addHook(dropStage, m, nil)
}

// dropsEvent reports whether a hook of Drop loses an event for the client of c, or a request of c
// that sets watches.
func (c *conn) dropsEvent(op Op, paths ...string) bool {
	hooks := &c.e.hooks
	if !hooks.on.Load() || len(paths) == 0 {
		return false
	}
	due := hooks.takeDue(dropStage, &Request{Server: c.srv, Session: c.sessionID(), Op: op, Path: paths[0], Paths: paths})
	for _, r := range due {
		r.h.once.Do(func() { close(r.h.ran) })
	}
	return len(due) > 0
}
