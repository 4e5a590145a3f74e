package cache

import "github.com/go-leaderelection/leaderelection/internal/zk/connection"

// syncCall is one call of Sync. done is closed when the cache contains everything that was committed before
// the call.
type syncCall struct{ done chan struct{} }

// startSync sends a request that makes the server catch up with the leader, for a new session or for a round of
// calls of Sync.
func (u *updater) startSync() {
	u.syncInFlight = true
	if len(u.syncRound) == 0 {
		u.syncRound, u.waitingSyncs, u.roundMarked = u.waitingSyncs, nil, false
	}
	u.send(&fetch{op: fetchSync, epoch: u.epoch})
}

// handleSyncReply handles the reply to the request of startSync. The server has now applied everything that was
// committed before the request, and the client has received the events of these changes, because a server sends
// events and replies in order.
func (u *updater) handleSyncReply(f *fetch) {
	u.syncInFlight = false
	if f.err != nil {
		if !connection.Transient(f.err) {
			u.log.Warn("sync failed", "err", f.err)
		}
		u.pauseRequests()
		return
	}
	if f.epoch == u.epoch {
		u.needsSync = false
	}
	if len(u.syncRound) > 0 && !u.roundMarked {
		u.markOutdated()
		u.roundMarked = true
	}
}

// markOutdated marks all parts that may be out of date as pending: the current round of Sync waits until they are
// read again.
func (u *updater) markOutdated() {
	now := u.nextTick()
	var all []*node // a copy, because pollPart can remove nodes
	u.tree.root.walkTree(func(n *node) { all = append(all, n) })
	for _, n := range all {
		for _, kind := range []partKind{dataPart, listPart} {
			p := n.part(kind)
			u.pollPart(p)
			if n.removed || kind == listPart && !u.hasList(n) {
				break
			}
			if n.err() != nil {
				p.dirty = true
			}
			if p.dirty || p.inFlight || kind == dataPart && n.deferred != nil {
				u.markPending(p, now)
			}
			u.enqueue(n, kind)
		}
	}
}

// finishSyncRound completes the calls of the current round of Sync, if markOutdated was called for this round. It
// must be called when no part is pending. It reports whether it has completed a round.
func (u *updater) finishSyncRound() bool {
	if !u.roundMarked {
		return false
	}
	for _, c := range u.syncRound {
		close(c.done)
	}
	u.syncRound, u.roundMarked = nil, false
	return true
}
