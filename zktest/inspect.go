package zktest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Tree returns the tree as text, one znode per line, with children sorted and indented
// below their parent. It omits the server's own znodes below /zookeeper:
//
//	/
//	  election
//	    n_0000000000 "host-a" ephemeral=0x1005c3b3e6e0001
//	    n_0000000001 "host-b" ephemeral=0x1005c3b3e6e0002
//
// For a server that is cut off, it is the state that its clients read.
func (s *Server) Tree() string {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	t := s.e.tree
	if s.view != nil {
		t = s.view.tree
	}
	var b strings.Builder
	dumpNode(&b, t.root, 0)
	return b.String()
}

// Tree returns the tree that the majority has agreed on; see [Server.Tree].
func (c *Ensemble) Tree() string {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	var b strings.Builder
	dumpNode(&b, c.e.tree.root, 0)
	return b.String()
}

func dumpNode(b *strings.Builder, n *node, depth int) {
	name := n.name()
	if n.parent == nil {
		name = "/"
	}
	b.WriteString(strings.Repeat("  ", depth) + name)
	switch {
	case len(n.data) == 0:
	case utf8.Valid(n.data) && len(n.data) <= 80:
		fmt.Fprintf(b, " %q", n.data)
	default:
		fmt.Fprintf(b, " (%d bytes)", len(n.data))
	}
	switch n.kind {
	case ephemeral:
		fmt.Fprintf(b, " ephemeral=0x%x", n.owner)
	case container:
		b.WriteString(" container")
	case ttlNode:
		fmt.Fprintf(b, " ttl=%v", time.Duration(n.ttl)*time.Millisecond)
	}
	b.WriteByte('\n')
	kids := slices.Clone(n.kids)
	slices.SortFunc(kids, func(x, y *node) int { return strings.Compare(x.path, y.path) })
	for _, k := range kids {
		if k.path != pathZooKeeper {
			dumpNode(b, k, depth+1)
		}
	}
}

// Session is what the servers know of a session.
type Session struct {
	ID int64
	// Timeout is the negotiated session timeout.
	Timeout time.Duration
	// ExpiresIn is the time until the session expires if the client sends nothing.
	ExpiresIn time.Duration
	// Server is the number of the server to which the client is connected, or -1.
	Server int
	// Ephemerals lists the ephemeral znodes of the session, oldest first.
	Ephemerals []string
}

// Sessions returns the sessions of the whole ensemble that have not expired, sorted by
// ID.
func (s *Server) Sessions() []Session {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]Session, 0, len(e.sessions))
	for _, id := range slices.Sorted(maps.Keys(e.sessions)) {
		x := e.sessions[id]
		s.e.applyReport(x)
		d := Session{ID: id, Timeout: x.timeout, ExpiresIn: x.deadline.Sub(e.nowLocked()), Server: -1}
		if x.conn != nil {
			d.Server = x.conn.srv.id
		}
		for _, n := range e.tree.ephemerals(id) {
			d.Ephemerals = append(d.Ephemerals, n.path)
		}
		out = append(out, d)
	}
	return out
}

// Watch describes a watch that a server stores for a client.
type Watch struct {
	Session int64
	Path    string
	Kind    WatchKind
	// Persistent reports whether the watch remains after it has fired.
	Persistent bool
	// Recursive reports whether the watch also covers all descendants of Path.
	Recursive bool
}

// WatchKind is the kind of a watch.
type WatchKind uint8

// The kinds of watches. A persistent watch is listed as one watch of each kind.
const (
	DataWatch  WatchKind = iota // set by exists and getData
	ChildWatch                  // ChildWatch is a watch that getChildren has set.
)

// String returns "data" or "children".
func (k WatchKind) String() string { return [...]string{"data", "children"}[k] }

// Watches returns the watches of the whole ensemble, at the given paths or at all paths.
// They are sorted by path, then by kind, then in the order in which they were set.
func (s *Server) Watches(paths ...string) []Watch {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Watch
	for kind, t := range []*watchTable{e.dataWatches, e.childWatches} {
		for p, list := range t.byPath {
			if len(paths) > 0 && !slices.Contains(paths, p) {
				continue
			}
			for _, c := range list {
				mode := c.watches(kind == 0)[p]
				out = append(out, Watch{c.sessionID(), p, WatchKind(kind), mode != oneShot, mode == recursiveWatch})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Watch) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return int(a.Kind) - int(b.Kind)
	})
	return out
}

// Log returns the requests to the whole ensemble so far. See [WithLogLimit].
func (s *Server) Log() Log {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.e.log.snapshot()
}

// ResetLog empties the request log.
func (s *Server) ResetLog() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.log.reset()
}

// Zxid returns the zxid of the last transaction that this server has applied.
func (s *Server) Zxid() int64 {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.view != nil {
		return s.view.tree.zxid
	}
	return s.e.tree.zxid
}

// Connections returns the number of client connections of this server.
func (s *Server) Connections() int {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return len(s.conns)
}
