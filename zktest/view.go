package zktest

import "slices"

// view is the state of servers or connections that are cut off from the quorum:
// an old tree, and the transactions that it has missed.
type view struct {
	tree   *tree
	missed []*txn
	late   []*conn // those that wait until the view has caught up
	conns  int     // how many look at it
	server *Server // whose it is, if it is a whole server's
}

// treeOf is the tree that c's reads come from.
func (e *ensemble) treeOf(c *conn) *tree {
	if c.view != nil {
		return c.view.tree
	}
	return e.tree
}

func (e *ensemble) newView(s *Server) *view {
	v := &view{tree: e.tree.clone(), server: s}
	e.views = append(e.views, v)
	return v
}

// setView makes c read from v. A view that nobody reads from any more is dropped,
// as it would go on to collect what it misses.
func (c *conn) setView(v *view) {
	if old := c.view; old != nil {
		old.late = slices.DeleteFunc(old.late, func(o *conn) bool { return o == c })
		if old.conns--; old.conns == 0 && old.server == nil {
			c.e.dropView(old)
		}
	}
	if v != nil {
		v.conns++
		if c.late != nil {
			v.late = append(v.late, c)
		}
	}
	c.view = v
	c.isCut.Store(c.cutOff())
}

func (e *ensemble) dropView(v *view) {
	e.views = slices.DeleteFunc(e.views, func(o *view) bool { return o == v })
}

func (s *Server) allOf(v *view) []*conn {
	var out []*conn
	for _, o := range s.e.servers {
		for _, c := range o.connections() {
			if c.view == v {
				out = append(out, c)
			}
		}
	}
	return out
}

// advance applies to v the transactions that it has missed, in order, as long as due
// holds: watches fire, and writes are answered. It returns the sessions that have ended.
func (e *ensemble) advance(v *view, due func(*txn) bool) (ended map[*session]bool) {
	n := 0
	for n < len(v.missed) && due(v.missed[n]) {
		t := v.missed[n]
		n++
		v.tree.applyTxn(t)
		for k := range t.changes {
			e.trigger(&t.changes[k], v)
		}
		for _, c := range slices.Clone(v.late) {
			if c.late.zxid <= t.zxid {
				c.answerLate()
			}
		}
		if t.ended != nil {
			if ended == nil {
				ended = make(map[*session]bool)
			}
			ended[t.ended] = true
		}
	}
	v.missed = v.missed[n:]
	return ended
}

// leaveBehind notes t for the views that show an older state.
func (e *ensemble) leaveBehind(t *txn) {
	for _, v := range e.views {
		v.missed = append(v.missed, t)
		if v.server != nil && len(v.missed) == 1 {
			v.server.armLag()
		}
	}
}
