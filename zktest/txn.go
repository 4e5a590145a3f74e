package zktest

import "time"

// txn is one transaction: the steps that the ensemble agreed on under one zxid.
type txn struct {
	zxid    int64
	at      time.Time
	time    int64 // at in milliseconds, as a Stat shows it
	changes []change
	buf     [1]change
	ended   *session // that it has ended; nil for none
	// Where the counter of children overflows the tree keeps its largest value,
	// but the rest of the transaction goes on with what comes after it.
	overflowed map[string]int32
}

// madeBelow is the number of children that parent has had, as this transaction counts.
func (t *txn) madeBelow(parent *node) int32 {
	if n, ok := t.overflowed[parent.path]; ok {
		return n
	}
	return parent.cversion
}

// makeBelow counts the child that ch makes below parent.
func (t *txn) makeBelow(parent *node, ch change) {
	if ch.version < parent.cversion {
		if t.overflowed == nil {
			t.overflowed = make(map[string]int32)
		}
		t.overflowed[parent.path] = ch.version
	}
	delete(t.overflowed, ch.path) // one of the same name that was deleted
}

func (t *txn) add(c change) *change {
	c.zxid, c.time = t.zxid, t.time
	if t.changes == nil {
		t.changes = t.buf[:0]
	}
	t.changes = append(t.changes, c)
	return &t.changes[len(t.changes)-1]
}

// begin takes the next zxid. As with the real server also a write that fails uses one up.
func (e *ensemble) begin() *txn {
	e.zxid++
	now := e.nowLocked()
	return &txn{zxid: e.zxid, at: now, time: now.UnixMilli()}
}

// commit applies every change of t and tells who watches.
func (e *ensemble) commit(t *txn) {
	e.tree.applyTxn(t)
	e.committed(t)
}

// committed is for changes that are in the tree already: it triggers the watches
// and hands the transaction to the servers that lag behind.
func (e *ensemble) committed(t *txn) {
	e.tree.zxid = t.zxid
	for i := range t.changes {
		e.trigger(&t.changes[i], nil)
	}
	e.leaveBehind(t)
	if len(e.tree.expires) > 0 {
		e.armSweep()
	}
}

func (t *tree) applyTxn(x *txn) {
	t.zxid = x.zxid
	for i := range x.changes {
		t.apply(&x.changes[i], false)
	}
}
