package zktest

import "time"

// txn is a transaction: the changes that the servers apply with one zxid.
type txn struct {
	zxid    int64
	at      time.Time
	time    int64 // the time at in milliseconds, for the Stats of znodes
	changes []change
	buf     [1]change
	ended   *session // the session that the transaction closes, or nil
	// overflowed contains, by the path of the parent, the counters of children that have overflowed in this
	// transaction. In the tree such a counter keeps its greatest value, but the transaction continues to count
	// with the number that follows.
	overflowed map[string]int32
}

// childrenEverCreated returns the number of children that were ever created below parent, including children that
// this transaction creates.
func (t *txn) childrenEverCreated(parent *node) int32 {
	if n, ok := t.overflowed[parent.path]; ok {
		return n
	}
	return parent.cversion
}

// recordChild must be called for each create ch of a child of parent. It records whether the counter
// of parent has overflowed.
func (t *txn) recordChild(parent *node, ch change) {
	if ch.version < parent.cversion {
		if t.overflowed == nil {
			t.overflowed = make(map[string]int32)
		}
		t.overflowed[parent.path] = ch.version
	}
	// A new znode has no overflowed counter, but a znode with the same path that the transaction
	// deletes may have had one.
	delete(t.overflowed, ch.path)
}

func (t *txn) add(c change) *change {
	c.zxid, c.time = t.zxid, t.time
	if t.changes == nil {
		t.changes = t.buf[:0]
	}
	t.changes = append(t.changes, c)
	return &t.changes[len(t.changes)-1]
}

// beginTxn assigns the next zxid. As on a real server, a write that fails has a zxid as well.
func (e *ensemble) beginTxn() *txn {
	e.zxid++
	now := e.nowLocked()
	return &txn{zxid: e.zxid, at: now, time: now.UnixMilli()}
}

// commitTxn applies the changes of t and fires watches.
func (e *ensemble) commitTxn(t *txn) {
	e.tree.applyTxn(t)
	e.publishTxn(t)
}

// publishTxn fires the watches of the changes of t, which the caller has applied, and queues t for
// the views of servers that are behind.
func (e *ensemble) publishTxn(t *txn) {
	e.tree.zxid = t.zxid
	for i := range t.changes {
		e.fireWatches(&t.changes[i], nil)
	}
	e.queueForViews(t)
	if len(e.tree.expires) > 0 {
		e.startSweepTimer()
	}
}

func (t *tree) applyTxn(x *txn) {
	t.zxid = x.zxid
	for i := range x.changes {
		t.apply(&x.changes[i], false)
	}
}
