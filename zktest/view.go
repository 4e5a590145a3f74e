package zktest

import "slices"

// view is the state that a server or connections read while they are cut off from the quorum or lag:
// an earlier tree, and the transactions that are missing in this tree.
type view struct {
	tree   *tree
	missed []*txn
	late   []*conn // the connections that have a lateReply
	conns  int     // the number of connections that read from the view
	server *Server // the server, if this is the view of a whole server; otherwise nil
}

// treeOf returns the tree from which c reads.
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

// newSeparateView returns a view with the present state of server s, for connections that are cut
// off without the server.
func (s *Server) newSeparateView() *view {
	v := s.e.newView(nil)
	if s.view != nil {
		v.tree, v.missed = s.view.tree.clone(), slices.Clone(s.view.missed)
	}
	return v
}

// setView makes c read from v. It removes the previous view if no connection is left in it, because
// the view would collect transactions without an end.
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
	c.isCut.Store(c.isCutOff())
}

func (e *ensemble) dropView(v *view) {
	e.views = slices.DeleteFunc(e.views, func(o *view) bool { return o == v })
}

func (s *Server) connsOfView(v *view) []*conn {
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

// advanceView applies the missing transactions of v, in order, as long as due returns true for the
// next one. It fires watches, sends late replies, and returns the sessions that these transactions
// have ended.
func (e *ensemble) advanceView(v *view, due func(*txn) bool) (ended map[*session]bool) {
	n := 0
	for n < len(v.missed) && due(v.missed[n]) {
		t := v.missed[n]
		n++
		v.tree.applyTxn(t)
		for k := range t.changes {
			e.fireWatches(&t.changes[k], v)
		}
		for _, c := range slices.Clone(v.late) {
			if c.late.zxid <= t.zxid {
				c.sendLateReply()
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

// queueForViews adds t to the missing transactions of each view.
func (e *ensemble) queueForViews(t *txn) {
	for _, v := range e.views {
		v.missed = append(v.missed, t)
		if v.server != nil && len(v.missed) == 1 {
			v.server.startLagTimer()
		}
	}
}
