package cache

import "fmt"

// defect returns why the node n in the tree can differ from its znode now or after later changes, or "" if it
// cannot. It must be called while all goroutines are idle.
func (n *node) defect(scope Scope) string {
	isPending := func(n *node) bool { return n.data.dirty || n.data.inFlight || n.deferred != nil }
	canRead := n.parent == nil || !isPending(n.parent)
	if n.deferred != nil && canRead {
		return "has a deferred reply, but its parent is not read"
	}
	if n.deferred == nil {
		if defect := n.data.defect(canRead, n.dataErr != nil); defect != "" && !(n.missing && n.data.watch != nil) {
			return "has data that " + defect
		}
	}
	if n.value == nil || n.depth >= scope || n.value.Stat.EphemeralOwner != 0 || n.dataErr != nil {
		return ""
	}
	if n.listErr == nil && n.tooLargePzxid == 0 {
		if defect := n.list.defect(!isPending(n), false); defect != "" {
			return "has a list that " + defect
		}
	}
	// Compare the numbers of children if the watch has not fired, because then no child was created
	// or deleted since the listing.
	l := &n.list
	if l.watch != nil && !l.watch.shared.Fired() && l.known && !l.dirty && !l.inFlight && len(n.children) != int(n.value.Stat.NumChildren) {
		return fmt.Sprintf("has %d children, not %d", len(n.children), n.value.Stat.NumChildren)
	}
	return ""
}

// defect returns why the updater would not read the part again when it is out of date, or "" if it would. canRead
// is true if nothing else must be read before the part. mayLackWatch is true if no watch can be set on the part.
func (p *part) defect(canRead, mayLackWatch bool) string {
	switch {
	case p.inFlight && p.queued:
		return "would be read twice"
	case p.inFlight || p.queued:
	case p.dirty && canRead:
		return "is dirty and is not read"
	case p.dirty:
	case !p.known:
		return "was not read"
	case p.watch == nil && !mayLackWatch:
		return "has no watch"
	}
	return ""
}
