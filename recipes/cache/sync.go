package cache

import "github.com/go-leaderelection/leaderelection/internal/zk/request"

// caller is one call of Sync.
type caller struct {
	done chan struct{} // closed when it is served
}

// serverSynced takes in that the server has caught up with what was committed when
// it was asked to. The client has received the events of all that by now, because
// they come before the answer.
func (o *owner) serverSynced(a *answer) {
	o.syncing = false
	if a.err != nil {
		if !request.Transient(a.err) {
			o.log.Warn("sync failed", "err", a.err)
		}
		o.failed()
		return
	}
	o.pause = 0
	if a.epoch == o.epoch {
		o.lagging = false
	}
	if len(o.round) > 0 && !o.swept {
		o.sweep()
		o.swept = true
	}
}

// sweep has everything owed that is not known to be as ZooKeeper has it.
func (o *owner) sweep() {
	now := o.tick()
	var all []*znode // a look at a watch may take some away
	o.root.walk(func(n *znode) { all = append(all, n) })
	for _, n := range all {
		for _, kind := range []watchKind{dataWatch, childWatch} {
			a := n.aspect(kind)
			o.hear(a)
			if n.gone || kind == childWatch && !o.listed(n) {
				break
			}
			if n.fault() != nil {
				a.dirty = true
			}
			if a.dirty || a.busy || kind == dataWatch && n.held != nil {
				o.owe(a, now)
			}
			o.enqueue(n, kind)
		}
	}
}

// synced tells the callers of a round that memory has what they have waited for.
func (o *owner) synced() bool {
	if !o.swept {
		return false
	}
	for _, c := range o.round {
		close(c.done)
	}
	o.round, o.swept = nil, false
	return true
}
