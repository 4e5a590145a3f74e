package zktest

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Request is what a hook is told about a request.
type Request struct {
	Server  *Server
	Session int64
	Op      Op
	Path    string   // of a multi or setWatches the first of Paths
	Paths   []string // all paths of a multi, a multiRead or a setWatches
	Xid     int32

	// Set for After hooks only.
	Zxid    int64
	Code    Code   // the result; zero if it is well
	Created string // the path that a create made
}

// Match chooses the requests that a hook is for. A zero field matches anything.
type Match struct {
	Op      Op
	Session int64 // of a handshake the one that the client asks for, 0 if a new one
	// Path is the path, or with a "*" at its end what the path begins with. A request
	// with several paths (multi, multiRead, setWatches) matches if one of them does.
	Path string
	// Nth is which of the matching requests is meant, counted from 1 since the hook
	// was set: the hook runs once. With 0 it runs for each of them.
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

// Verdict is what a hook wants done with a request. The zero Verdict lets it
// through; a hook of one's own gets the others from [Cut] and [Fail], as in
// "return zktest.Cut(q)".
type Verdict struct {
	cut, fail bool
	code      Code
}

func (v Verdict) pass() bool { return !v.cut && !v.fail }

// HookFunc decides about a request. It runs on the goroutine that serves the
// client, with no lock held, so it may call any method of the server, and it may
// block: the client then waits, and so does everything it sent after this request.
type HookFunc func(*Request) Verdict

// Pass lets the request, or the answer, through.
func Pass(*Request) Verdict { return Verdict{} }

// Cut closes the connection. In a Before hook the request is never applied; in an
// After hook it is, and the answer is lost. The client cannot tell these apart.
func Cut(*Request) Verdict { return Verdict{cut: true} }

// Fail answers with err: a [Code], or an error of package zk that stands for one.
// In a Before hook the request is not applied; in an After hook it is, and the
// answer lies. A handshake cannot be answered with an error, it is cut instead.
func Fail(err error) HookFunc {
	code := codeOf(err)
	return func(*Request) Verdict { return Verdict{fail: true, code: code} }
}

// Hook is a hook that has been set.
type Hook struct {
	set   *hookSet
	stage stage
	match Match
	do    HookFunc
	seen  int
	ran   chan struct{}
	once  sync.Once
}

// Ran is closed when the hook has been called the first time, and has returned.
func (h *Hook) Ran() <-chan struct{} { return h.ran }

// Remove takes the hook away. A call of it that is under way is not waited for.
func (h *Hook) Remove() {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	h.set.drop(h)
}

type stage uint8

const (
	beforeStage stage = iota
	afterStage
)

type hookSet struct {
	on    atomic.Bool // there are hooks
	mu    sync.Mutex
	hooks []*Hook
}

// hookRun is a hook whose turn it is.
type hookRun struct{ h *Hook }

func (s *hookSet) add(st stage, m Match, do HookFunc) *Hook {
	h := &Hook{set: s, stage: st, match: m, do: do, ran: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = append(s.hooks, h)
	s.on.Store(true)
	return h
}

func (s *hookSet) drop(h *Hook) {
	s.hooks = slices.DeleteFunc(s.hooks, func(o *Hook) bool { return o == h })
	s.on.Store(len(s.hooks) > 0)
}

func (s *hookSet) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = nil
	s.on.Store(false)
}

// match counts q for every hook and returns those whose turn it is.
func (s *hookSet) match(st stage, q *Request) []hookRun {
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
			s.drop(h)
		}
		due = append(due, hookRun{h})
	}
	return due
}

// run calls the hooks in the order in which they were set. The first verdict
// that is not Pass counts; the others are called all the same.
func (c *conn) run(due []hookRun, q *Request) Verdict {
	var out Verdict
	if len(due) > 0 {
		c.flush() // a hook may take its time, and earlier answers do not wait for it
	}
	for _, r := range due {
		v := r.h.do(q)
		if out.pass() {
			out = v
		}
		r.h.once.Do(func() { close(r.h.ran) })
	}
	return out
}

// Before sets a hook that runs when a matching request has arrived and before it
// is applied. Hooks are of the whole ensemble; [Request.Server] tells where.
func (s *Server) Before(m Match, do HookFunc) *Hook { return s.e.hooks.add(beforeStage, m, do) }

// After sets a hook that runs when a matching request has been applied, and
// others can see its effects, before it is answered.
func (s *Server) After(m Match, do HookFunc) *Hook { return s.e.hooks.add(afterStage, m, do) }
