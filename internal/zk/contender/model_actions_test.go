package contender

import (
	"fmt"
	"slices"
	"strings"
)

// This file contains the transitions of the model: what may happen next in a state.

// fault is a kind of event whose number the budget of a scenario limits.
type fault uint8

const (
	breaks      fault = iota // a connection breaks
	lateCreates              // a broken connection's create is executed late
	lapses                   // a lease ends because it is not renewed in time
	expiries                 // a session expires
	replaces                 // a server gives a client another session without notice
	unsets                   // the watches are not set again after a reconnect
	leaves                   // a contender is asked to leave
	operators                // an operator deletes the znode of a contender
	arrivals                 // another client creates a znode
	deletions                // a client deletes the queue
	closes                   // the owner of a connection closes it
	faults
)

var faultNames = [faults]string{
	"break", "late create", "lapse", "expiry", "replacement", "rejected watches", "leave", "operator", "arrival", "deleted queue", "close",
}

// String returns the name of the kind.
func (f fault) String() string { return faultNames[f] }

// actionKind is the kind of an action.
type actionKind uint8

const (
	serveRequest actionKind = iota
	serveWatches
	serveMonitor
	serveOutlived
	applyChange
	connect
	breakNow
	takeInbox
	takeNet
	takeOwn
	takeOther
	takeQueue
	takeState
	takeTimer
	takeProof
	expire
	grow // time passes, so that the lease of a session ends
	endQueue
	leaveNow
	replaceSession
	rejectWatches
	closeConn
	noticeClose
	operate
	arrive
	depart
	lateCreate
)

// action is a transition. The meaning of a, b and c depends on the kind.
type action struct {
	kind    actionKind
	a, b, c uint8
	// fair actions happen eventually if nothing else happens.
	fair bool
}

// actions appends the actions that are possible to list.
func (w *model) actions(list []action) []action {
	add := func(fair bool, kind actionKind, v ...int) {
		a := action{kind: kind, fair: fair}
		for i, p := range []*uint8{&a.a, &a.b, &a.c} {
			if i < len(v) {
				*p = uint8(v[i])
			}
		}
		list = append(list, a)
	}
	for i := range w.scenario.conns {
		w.addConn(i, add)
	}
	for i := range w.scenario.members {
		w.addMember(i, add)
	}
	w.addOthers(add)
	return list
}

// addConn adds the actions of a connection and its server.
func (w *model) addConn(i int, add func(fair bool, kind actionKind, v ...int)) {
	c := w.conns[i]
	if c.closedByOwner {
		if !c.closed {
			add(true, noticeClose, i)
		}
		return
	}
	if !c.up {
		add(true, connect, i, 0)
		if w.isAlive(c.session) {
			if c.seen < w.head() && w.isLagging(i) {
				add(true, connect, i, 1)
			}
			if w.budget[replaces] > 0 {
				add(false, replaceSession, i)
			}
		}
		return
	}
	if c.applied < w.head() && !c.dying {
		add(true, applyChange, i)
	}
	if c.dying || w.budget[breaks] > 0 && (i > 0 || !w.scenario.succession) {
		for received := range len(c.net) + 1 {
			add(c.dying, breakNow, i, received, 0)
			if w.hasWrite(i) {
				add(c.dying, breakNow, i, received, 1)
				if w.budget[lateCreates] > 0 {
					add(false, breakNow, i, received, 2)
				}
			}
		}
	}
	if w.budget[closes] > 0 && !c.dying && w.isAlive(c.session) {
		add(false, closeConn, i, 0)
		if w.nodesOf(c.session) > 1 {
			add(false, closeConn, i, 1)
		}
	}
	for k := range c.net {
		if c.net[k].member == ofACheck {
			add(true, takeProof, i, k+1)
		}
	}
	if c.check.state == checkReceived {
		add(true, takeProof, i, 0)
	}
	if c.dying || c.busy != nil {
		return
	}
	if c.resend {
		add(true, serveWatches, i, 0)
		if len(c.pool) > 1 {
			add(true, serveWatches, i, 1)
		}
		if w.budget[unsets] > 0 {
			add(false, rejectWatches, i)
		}
	}
	if w.isAlive(c.session) {
		if w.isCheckUseful(i) {
			add(true, serveMonitor, i)
		}
		if len(c.deleting) > 0 {
			add(true, serveOutlived, i)
		}
	}
}

// hasWrite reports whether a contender of a connection waits for a server to execute a create or a
// deletion.
func (w *model) hasWrite(i int) bool {
	for _, j := range w.on(i) {
		for k := range w.members[j].calls {
			if kind := w.members[j].calls[k].request.Kind; kind == Create || kind == Delete {
				return true
			}
		}
	}
	return false
}

// isCheckUseful reports whether the monitor of connection i can send a check whose result would change the state of
// the model.
func (w *model) isCheckUseful(i int) bool {
	c := w.conns[i]
	if c.check.state != noCheck {
		return false
	}
	proving, missing := false, false
	for _, j := range w.on(i) {
		if name := w.members[j].proving; name != "" {
			proving = true
			missing = missing || w.tree.find(name) == nil
		}
	}
	return proving && (!c.proven || missing)
}

// addMember adds the actions of a contender.
func (w *model) addMember(i int, add func(fair bool, kind actionKind, v ...int)) {
	m := w.members[i]
	if m.ended != running {
		return
	}
	c := w.conns[m.conn]
	if c.closedByOwner || c.up && !c.dying && c.busy == nil {
		for k := range m.calls {
			if w.isServed(i, m.calls[k].request.Kind) && !w.isShared(i, &m.calls[k].request) {
				add(true, serveRequest, i, k)
			}
		}
	}
	if m.proved {
		add(true, takeState, i)
		return
	}
	left := m.machine.Leaving()
	for k := range m.inbox {
		add(true, takeInbox, i, k)
	}
	for k := range c.net {
		switch it := &c.net[k]; {
		case int(it.member) == i:
			add(true, takeNet, i, k, 0)
		case it.member != anEvent || left:
		case m.own.waitsFor(&it.event):
			add(true, takeNet, i, k, 1)
		case m.others[0].waitsFor(&it.event):
			add(true, takeNet, i, k, 2)
		case m.others[1].waitsFor(&it.event):
			add(true, takeNet, i, k, 3)
		case m.queue.waitsFor(&it.event):
			add(true, takeNet, i, k, 4)
		}
	}
	if m.notified {
		add(true, takeState, i)
	}
	if left {
		return
	}
	if m.own.fired {
		add(true, takeOwn, i)
	}
	for k := range m.others {
		if m.others[k].fired {
			add(true, takeOther, i, k)
		}
	}
	if m.queue.fired {
		add(true, takeQueue, i)
	}
	for t := range 8 {
		if m.timers&(1<<t) != 0 {
			// Patience ends only while ZooKeeper is unreachable.
			if Timer(t) != PatienceTimer {
				add(true, takeTimer, i, t)
			} else if !c.up {
				add(false, takeTimer, i, t)
			}
		}
	}
	if w.budget[leaves] > 0 && !m.asked && (i == 0 || !w.scenario.succession) {
		add(false, leaveNow, i)
	}
}

// waitsFor reports whether the happening e would fire the watch.
func (h *handle) waitsFor(e *happening) bool {
	return h.name == e.name && !h.fired && (h.kind == dataWatch || e.event == Deleted)
}

// isServed reports whether the server can execute a request of kind k of contender i. The contenders are
// equivalent, so their first creates are executed only in the order of their letters, to avoid equivalent states.
func (w *model) isServed(i int, k RequestKind) bool {
	if !isWrite(k) || w.conns[w.members[i].conn].closedByOwner {
		return true
	}
	return w.isAlive(w.conns[w.members[i].conn].session) && !(k == Create && w.mustWait(i))
}

// isShared reports whether the watch pool delays the read of a predecessor until another read of the
// same znode has ended.
func (w *model) isShared(i int, r *Request) bool {
	same := func(other *Request) bool { return other.Kind == ReadBefore && other.Name == r.Name }
	m := w.members[i]
	return r.Kind == ReadPredecessor && (slices.ContainsFunc(m.calls, func(q call) bool { return same(&q.request) }) ||
		slices.ContainsFunc(w.conns[m.conn].net, func(it item) bool { return int(it.member) == i && same(&it.reply.request) }))
}

// mustWait reports whether contender i must not create its znode before another contender has created one.
func (w *model) mustWait(i int) bool {
	if i <= w.scenario.settled || w.members[i].created {
		return false
	}
	before := w.members[i-1]
	return !before.created && before.ended == running
}

// addOthers adds the actions of sessions and of other clients.
func (w *model) addOthers(add func(fair bool, kind actionKind, v ...int)) {
	for k := range w.sessions {
		s := &w.sessions[k]
		if !s.alive || s.conn < 0 {
			continue
		}
		abandoned := w.isAbandoned(s)
		if unused := w.isUnused(s); s.leased && (unused || w.budget[lapses] > 0) {
			add(unused, grow, k)
		}
		if !s.leased && (abandoned || w.budget[expiries] > 0) && w.areNotified(int(s.conn)) {
			add(abandoned, expire, k, 0)
			if w.nodesOf(s.id) > 1 {
				add(abandoned, expire, k, 1)
			}
		}
	}
	if w.budget[operators] > 0 {
		for k := range w.tree.nodes {
			if i := memberOf(w.tree.nodes[k].name); i > 0 || i == 0 && !w.scenario.succession {
				add(false, operate, k)
			}
		}
	}
	if w.budget[arrivals] > 0 && w.tree.queue != 0 {
		add(false, arrive)
	}
	for k := range w.tree.nodes {
		if n := &w.tree.nodes[k]; memberOf(n.name) < 0 && n.session != 0 {
			add(false, depart, k)
		}
	}
	for k := range w.ghosts {
		if w.isAlive(w.ghosts[k].session) && w.tree.queue != 0 {
			add(false, lateCreate, k)
		}
	}
	switch {
	case w.deleting == 1 && !w.scenario.interrupted:
		add(true, endQueue)
	case w.budget[deletions] > 0 && w.deleting == 0 && w.tree.queue != 0:
		add(false, endQueue)
	}
}

// areNotified reports whether all leaders of connection c have taken the newest state of their lease. A session
// expires only then, because a lease ends long enough before the session can expire.
func (w *model) areNotified(c int) bool {
	for _, j := range w.on(c) {
		if m := w.members[j]; m.notified && m.user.proven {
			return false
		}
	}
	return true
}

// isAbandoned reports whether the client of a session does not continue it.
func (w *model) isAbandoned(s *session) bool {
	return w.conns[s.conn].session != s.id || w.conns[s.conn].closedByOwner
}

// isUnused reports whether the lease of session s may end without a fault, because no contender renews it. In
// scenarios without faults of connections and leases, only the leases of abandoned sessions end. The end of other
// leases would only add states.
func (w *model) isUnused(s *session) bool {
	isProving := func(j int) bool { return w.members[j].proving != "" }
	b := &w.scenario.budget
	return w.isAbandoned(s) || (b[breaks] > 0 || b[lapses] > 0) && !slices.ContainsFunc(w.on(int(s.conn)), isProving)
}

// nodesOf returns the number of znodes of a session.
func (w *model) nodesOf(session int64) (n int) {
	for k := range w.tree.nodes {
		if w.tree.nodes[k].session == session {
			n++
		}
	}
	return n
}

// do changes the state by an action.
func (w *model) do(a action) {
	if w.tracing {
		w.trace = append(w.trace, w.describe(a))
	}
	i, k := int(a.a), int(a.b)
	spend := func(f fault) { w.budget[f]-- }
	switch a.kind {
	case serveRequest:
		w.serve(i, k)
	case serveWatches:
		w.setWatches(i, a.b == 1)
	case rejectWatches:
		spend(unsets)
		w.conn(i).resend = false
	case closeConn:
		spend(closes)
		w.shutConn(i, a.b == 1)
	case noticeClose:
		w.conn(i).closed = true
		for _, j := range w.on(i) {
			w.member(j).notified = true
		}
	case serveMonitor:
		w.serveCheck(i)
	case serveOutlived:
		w.serveBurial(i)
	case applyChange:
		w.applyNext(i)
	case connect:
		to := w.head()
		if a.b == 1 {
			to = w.conns[i].seen
		}
		w.reconnect(i, to, false)
	case replaceSession:
		spend(replaces)
		w.reconnect(i, 0, true)
	case breakNow:
		if !w.conns[i].dying {
			spend(breaks)
		}
		if a.c == 2 {
			spend(lateCreates)
		}
		w.breakConn(i, k, a.c == 1, a.c == 2)
	case takeInbox:
		w.takeReply(i, k)
	case takeNet:
		w.receive(w.members[i].conn, k+1)
		switch m := w.members[i]; a.c {
		case 0:
			w.takeReply(i, len(m.inbox)-1)
		case 1:
			w.input(i, nil)
		case 4:
			w.takeQueueEvent(i)
		default:
			w.takeEvent(i, int(a.c-2))
		}
	case takeOwn:
		w.input(i, nil)
	case takeOther:
		w.takeEvent(i, k)
	case takeQueue:
		w.takeQueueEvent(i)
	case takeState:
		w.member(i).proved = false
		w.input(i, &Input{Kind: ConnChanged})
	case takeTimer:
		w.member(i).timers &^= 1 << k
		w.input(i, &Input{Kind: Expired, Timer: Timer(k)})
	case takeProof:
		w.receive(i, k)
		w.takeCheck(i)
	case leaveNow:
		spend(leaves)
		w.member(i).asked = true
		w.input(i, &Input{Kind: Leave, Err: errAsked})
	default:
		w.doExternal(a, spend)
	}
	w.normalize()
	w.verify()
}

// doExternal executes an action of a session or of another client.
func (w *model) doExternal(a action, spend func(fault)) {
	k := int(a.a)
	switch a.kind {
	case grow:
		s := &w.sessions[k]
		if !w.isUnused(s) {
			spend(lapses)
		}
		w.age(s)
	case expire:
		s := &w.sessions[k]
		if !w.isAbandoned(s) {
			spend(expiries)
		}
		w.age(s)
		s.alive = false
		w.commit(change{kind: closeSession, session: s.id, reversed: a.b == 1})
	case operate:
		spend(operators)
		w.deleteFor(w.tree.nodes[k].name)
	case arrive:
		spend(arrivals)
		w.commit(change{kind: createNode, node: w.newForeign(false, foreignSession)})
	case depart:
		w.commit(change{kind: deleteNode, name: w.tree.nodes[k].name})
	case lateCreate:
		g := w.ghosts[k]
		w.ghosts = slices.Delete(slices.Clone(w.ghosts), k, k+1)
		w.commit(change{kind: createNode, node: w.newNode(g.name, g.session)})
		w.member(memberOf(g.name)).created = true
	case endQueue:
		n := len(w.tree.nodes)
		switch {
		case w.deleting == 0:
			spend(deletions)
			w.deleting = 1
			w.commit(change{kind: markEnded})
		case n > 0:
			w.deleteFor(w.tree.nodes[n-1].name)
		default:
			w.deleting = 2
			w.commit(change{kind: removeQueue})
		}
	}
}

// deleteFor deletes a znode for another client.
func (w *model) deleteFor(name string) {
	if i := memberOf(name); i >= 0 {
		// A contender that does not know the name of its znode may still receive the reply to a create that has
		// stamped the queue, and lead by it, although the znode is deleted. So the contender is exempt.
		own := w.members[i].machine.znode.name
		w.member(i).exempt = w.members[i].exempt || own == name || own == "" && w.scenario.stamp
	}
	w.commit(change{kind: deleteNode, name: name})
}

// foreignSession is the session of all other clients.
const foreignSession = 9

// newForeign returns a znode of another client.
func (w *model) newForeign(plain bool, session int64) znode {
	n := w.newNode("", session)
	n.name = foreignName(w.foreign, plain, n.name)
	w.foreign++
	return n
}

// normalize removes differences between states that do not affect what can happen later.
func (w *model) normalize() {
	low := w.head()
	for i := range w.scenario.conns {
		c := w.conns[i]
		if w.isLagging(i) {
			low = min(low, c.applied, c.seen)
		} else if c.seen != w.head() {
			w.conn(i).seen = w.head()
		}
		if w.budget[breaks] == 0 && w.budget[expiries] == 0 && c.up && !c.dying && w.isAlive(c.session) {
			// In this state no reply can be lost any more, so the client receives all of them at once.
			for len(w.conns[i].net) > 0 && w.conns[i].net[0].member >= 0 {
				w.receive(i, 1)
			}
		}
	}
	for w.first < low {
		w.base, _ = w.base.apply(&w.log[0])
		w.log = w.log[1:]
		w.first++
	}
	w.sessions = slices.DeleteFunc(w.sessions, func(s session) bool { return !s.alive && w.conns[s.conn].session != s.id })
	w.ghosts = slices.DeleteFunc(slices.Clone(w.ghosts), func(g ghost) bool {
		return w.members[memberOf(g.name)].machine.Leaving() || !w.isAlive(g.session)
	})
}

// describe returns an action as text. The field a of the action is the index of a contender, a connection, a
// session or a znode, depending on the kind of the action.
func (w *model) describe(a action) string {
	i := int(a.a)
	what := [...]string{
		serveRequest: "the server executes a request of contender %c", serveWatches: "the client library of connection %d sets its watches again",
		serveMonitor: "the server of connection %d executes a check of the lease", serveOutlived: "the server of connection %d deletes an outlived znode",
		applyChange: "the server of connection %d applies the next change", connect: "connection %d is established again",
		breakNow: "connection %d breaks", takeInbox: "contender %c takes an input", takeNet: "contender %c takes an input", takeOwn: "contender %c takes an input",
		takeOther: "contender %c takes an input", takeQueue: "contender %c takes an input", takeState: "contender %c takes an input",
		takeTimer: "contender %c takes an input", takeProof: "the monitor of connection %d takes the reply to its check", expire: "session %d expires",
		grow: "the lease of session %d ends", endQueue: "another client deletes the queue, step %d", leaveNow: "contender %c is asked to leave",
		replaceSession: "connection %d is established again, in another session without notice", rejectWatches: "the server of connection %d rejects its watches",
		closeConn: "connection %d is closed by its owner", noticeClose: "the monitor of connection %d notices that the owner has closed it",
		operate: "an operator deletes znode %d", arrive: "another client creates a znode, number %d", depart: "another client deletes znode %d",
		lateCreate: "a server executes create %d of a broken connection",
	}[a.kind]
	if strings.Contains(what, "%c") {
		i += 'a'
	}
	return fmt.Sprintf(what, i) + fmt.Sprintf(" (%d, %d)", a.b, a.c)
}
