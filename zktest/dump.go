package zktest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Tree is the tree as text, one node a line, children sorted and indented under
// their parent, without the server's own nodes under /zookeeper:
//
//	/
//	  election
//	    n_0000000000 "host-a" ephemeral=0x1005c3b3e6e0001
//	    n_0000000001 "host-b" ephemeral=0x1005c3b3e6e0002
//
// Of a server that is cut off it is what its clients see.
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

// Tree is the tree that the majority agreed on; see [Server.Tree].
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

// Session describes a session.
type Session struct {
	ID         int64
	Timeout    time.Duration // as negotiated
	ExpiresIn  time.Duration // if nothing is heard of the client
	Server     int           // where it is connected, or -1
	Ephemerals []string      // the nodes it owns, oldest first
}

// Sessions lists the sessions that are alive, of the whole ensemble, by their ID.
func (s *Server) Sessions() []Session {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]Session, 0, len(e.sessions))
	for _, id := range slices.Sorted(maps.Keys(e.sessions)) {
		x := e.sessions[id]
		s.e.report(x)
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

// Watch describes a watch that is set.
type Watch struct {
	Session    int64
	Path       string
	Kind       WatchKind
	Persistent bool // stays after it fired
	Recursive  bool // and is for everything below the path too
}

// WatchKind says what a watch is for.
type WatchKind uint8

// The kinds of watches. A persistent watch counts as one of each.
const (
	DataWatch  WatchKind = iota // set by exists and getData
	ChildWatch                  // set by getChildren
)

// String is "data" or "children".
func (k WatchKind) String() string { return [...]string{"data", "children"}[k] }

// Watches lists the watches of the whole ensemble: those at the given paths, or
// all. They are sorted by path, then kind, then in the order in which they were set.
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

// Log returns what was asked of the whole ensemble, up to now. See [WithLogLimit].
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

// Zxid is the number of the last transaction that this server has applied.
func (s *Server) Zxid() int64 {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.view != nil {
		return s.view.tree.zxid
	}
	return s.e.tree.zxid
}

// Connections is the number of client connections that this server has.
func (s *Server) Connections() int {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return len(s.conns)
}
