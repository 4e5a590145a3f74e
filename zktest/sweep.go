package zktest

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// Sweep immediately deletes containers whose last child was deleted and TTL nodes that
// have expired. It returns the number of deleted znodes.
func (s *Server) Sweep() int {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closed {
		return 0
	}
	return s.e.deleteExpired()
}

// deleteExpired deletes the containers and TTL nodes that have expired.
func (e *ensemble) deleteExpired() int {
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
		t := e.beginTxn()
		t.add(change{kind: changeDelete, op: wire.DeleteContainer, path: p})
		e.commitTxn(t)
		e.addLogEntry(Entry{Op: OpDeleteContainer, Path: p, Zxid: t.zxid})
	}
	return len(due)
}

// startSweepTimer starts the timer of the next sweep, if there are containers or TTL nodes.
func (e *ensemble) startSweepTimer() {
	if e.stopSweep != nil || e.closed || len(e.tree.expires) == 0 || e.cfg.sweep <= 0 {
		return
	}
	e.stopSweep = e.startTimer(e.cfg.sweep, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stopSweep = nil
		if !e.closed && e.quorum {
			e.deleteExpired()
		}
		e.startSweepTimer()
	})
}
