package cache

import (
	"fmt"
	"testing/synctest"
	"time"
)

// A cache that misses something mostly finds it with the next change. So the
// schedules look at its state many times, not only at what it has in the end.

// glance is how long nobody looks at the state.
const glance = 10 * time.Millisecond

// watch lets d pass and looks at the cache's state again and again. Whenever all
// goroutines wait it must be complete.
func (p *performance) watch(d time.Duration) {
	for {
		step := min(d, glance)
		time.Sleep(step)
		synctest.Wait()
		c := p.cache
		c.mu.RLock()
		c.root.walk(func(n *znode) {
			if what := n.defect(p.scope); what != "" {
				p.fault("after %v: %s %s", time.Since(p.begin), n.path, what)
			}
		})
		c.mu.RUnlock()
		if d -= step; d == 0 {
			return
		}
	}
}

// defect is why n would not become, or stay, what ZooKeeper has.
func (n *znode) defect(scope Scope) string {
	pending := func(n *znode) bool { return n.data.dirty || n.data.busy || n.held != nil }
	orphan := n.parent == nil || !pending(n.parent)
	if n.held != nil && orphan {
		return "has an answer held while the parent is not read"
	}
	if n.held == nil {
		if what := n.data.defect(orphan, n.unread != nil); what != "" && !(n.missing && n.data.watch != nil) {
			return "has data that " + what
		}
	}
	if n.value == nil || n.depth >= scope || n.value.Stat.EphemeralOwner != 0 || n.unread != nil {
		return ""
	}
	if n.unlisted == nil && n.refusedList == 0 {
		if what := n.list.defect(!pending(n), false); what != "" {
			return "has a listing that " + what
		}
	}
	// Each child that comes or goes fires the watch.
	if l := &n.list; l.watch != nil && !l.watch.shared.Fired() && l.known && !l.dirty && !l.busy && len(n.children) != int(n.value.Stat.NumChildren) {
		return fmt.Sprintf("has %d children, not %d", len(n.children), n.value.Stat.NumChildren)
	}
	return ""
}

// defect is why a would not be read when it has to be: free says that nothing has to
// be read before it, and mute that no watch is to be had.
func (a *aspect) defect(free, mute bool) string {
	switch {
	case a.busy && a.queued:
		return "would be asked for twice"
	case a.busy || a.queued:
	case a.dirty && free:
		return "nobody asks for"
	case a.dirty:
	case !a.known:
		return "was not read"
	case a.watch == nil && !mute:
		return "nothing is watching"
	}
	return ""
}
