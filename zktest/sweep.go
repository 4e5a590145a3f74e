package zktest

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// Sweep immediately deletes containers whose last child was deleted and TTL nodes that
// have expired. It returns the number of deleted znodes.
func (s *Server) Sweep() int {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closed {
		return 0
	}
	return s.e.sweep()
}

// sweep deletes what containers and TTL nodes are due.
func (e *ensemble) sweep() int {
	now := e.nowLocked().UnixMilli()
	var due []string
	for p := range e.tree.expires {
		n := e.tree.nodes[p]
		if len(n.kids) == 0 && (n.kind == container && n.cversion > 0 || n.kind == ttlNode && now-n.mtime > n.ttl) {
			due = append(due, p)
		}
	}
	slices.Sort(due)
	for _, p := range due {
		t := e.begin()
		t.add(change{kind: changeDelete, op: wire.DeleteContainer, path: p})
		e.commit(t)
		e.record(Entry{Op: OpDeleteContainer, Path: p, Zxid: t.zxid})
	}
	return len(due)
}

// armSweep starts the timer for the next sweep, if there is anything to look at.
func (e *ensemble) armSweep() {
	if e.stopSweep != nil || e.closed || len(e.tree.expires) == 0 || e.cfg.sweep <= 0 {
		return
	}
	e.stopSweep = e.timer(e.cfg.sweep, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stopSweep = nil
		if !e.closed && e.quorum {
			e.sweep()
		}
		e.armSweep()
	})
}
