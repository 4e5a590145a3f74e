package contender

import (
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// This file contains the client: the client library, the watch pool and the monitor of a
// connection, and the drivers of package queue. Requests are sent from goroutines, so that the
// servers execute those of one contender in any order, and the replies that the client library has
// received reach the driver in any order, before or after events.

// receive lets the client library receive the first n items that the server has sent.
func (w *model) receive(i, n int) {
	for range n {
		c := w.conn(i)
		it := c.net[0]
		c.net = c.net[1:]
		switch it.member {
		case anEvent:
			for _, kind := range []watchKind{dataWatch, childWatch} {
				key := watchKey{it.event.name, kind}
				k := slices.IndexFunc(c.pool, func(p pooled) bool { return p.watchKey == key })
				if k >= 0 && (kind == dataWatch || it.event.event == Deleted) {
					c.pool = slices.Delete(c.pool, k, k+1)
					w.fire(i, key, it.event.event)
				}
			}
		case ofACheck:
			c.check.state = checkReceived
			c.seen = max(c.seen, it.zxid)
		default:
			c.seen = max(c.seen, it.zxid)
			w.receiveReply(c, int(it.member), *it.reply)
		}
	}
}

// receiveReply completes a reply, as the goroutine that sends the request does in package queue.
func (w *model) receiveReply(c *conn, i int, r answered) {
	m := w.member(i)
	q := &r.request
	switch {
	case r.reply.Err != nil:
	case q.Kind == Create && c.session == r.session:
		// The session of the znode is known only if the session of the connection has not changed.
		r.reply.Session = r.session
	case r.set:
		key, _ := watchOf(q)
		k := slices.IndexFunc(c.pool, func(p pooled) bool { return p.watchKey == key })
		if k < 0 {
			k = len(c.pool)
			c.pool = append(c.pool, pooled{watchKey: key})
		}
		p := &c.pool[k]
		p.epoch, p.version = max(p.epoch, q.Epoch), r.version
		r.watch = handle{name: key.name, kind: key.kind}
		r.reply.Doubt = p.epoch < q.Epoch
	case r.watch.name != "":
		r.reply.Doubt = r.doubt
	}
	m.inbox = append(m.inbox, &r)
}

// fire fires a watch for all contenders of a connection that have it.
func (w *model) fire(i int, key watchKey, e Event) {
	hit := func(h *handle) bool {
		if h.name != key.name || h.kind != key.kind || h.fired {
			return false
		}
		h.fired, h.event = true, e
		return true
	}
	for _, j := range w.on(i) {
		m := w.member(j)
		hit(&m.own)
		hit(&m.others[0])
		hit(&m.others[1])
		hit(&m.queue)
		for k := range m.calls {
			hit(&m.calls[k].watch)
		}
		for k, r := range m.inbox {
			if changed := *r; hit(&changed.watch) {
				m.inbox[k] = &changed
			}
		}
	}
}

// chooseWatch returns q with the watch that the request will use: none, one of the connection's pool, or a new one
// that the request sets.
func (w *model) chooseWatch(c *conn, q call) call {
	q.set, q.watch, q.doubt = false, handle{}, false
	key, watched := watchOf(&q.request)
	if !watched {
		return q
	}
	k := slices.IndexFunc(c.pool, func(p pooled) bool { return p.watchKey == key })
	if k < 0 || c.pool[k].epoch < q.request.Epoch && q.request.Reset {
		q.set = true
		return q
	}
	q.watch = handle{name: key.name, kind: key.kind}
	q.doubt = c.pool[k].epoch < q.request.Epoch
	return q
}

// send sends a request of a contender.
func (w *model) send(m *member, i int, r *Request) {
	c := w.conns[m.conn]
	q := call{request: *r}
	q.request.Prefixes = slices.Clone(r.Prefixes)
	if r.Kind == Create {
		q.prefix, q.session = prefixOf(i, m.attempts), c.session
		m.attempts++
		m.fresh = true
	}
	if slices.ContainsFunc(m.calls, func(other call) bool { return other.request.Kind == r.Kind }) {
		w.fail("%v is sent while another request of this kind is outstanding", r)
	}
	m.calls = append(m.calls, w.chooseWatch(c, q))
}

// input passes an input to contender i. If the event of the deletion of its znode has arrived, the contender
// receives that event first.
func (w *model) input(i int, in *Input) {
	m := w.member(i)
	if m.own.fired && !m.machine.Leaving() {
		event := Input{Kind: Fired, Watch: OwnWatch, Name: m.own.name, Err: m.own.event.err()}
		m.own = handle{}
		w.step(i, &event)
		if in == nil || m.machine.Leaving() && in.Kind != Replied {
			return
		}
	}
	w.step(i, in)
}

// step executes a step of the state machine and its outputs.
func (w *model) step(i int, in *Input) {
	m := w.member(i)
	c := w.conn(m.conn)
	machine, before := m.forkMachine(), m.user
	out := machine.Step(connection.State{
		Session: c.session, Up: c.up, Closed: c.closed, Epoch: c.epoch, Missing: m.missing, Proven: c.proven, Lapses: c.lapses,
	}, in, nil)
	m.notified = false
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("    %c: %s", 'a'+i, describeInput(in)))
	}
	for k := range out {
		o := &out[k]
		if w.tracing {
			w.trace = append(w.trace, "        "+describe(o))
		}
		if o.Kind == Send {
			w.send(m, i, &o.Request)
		} else {
			w.execute(m, i, o)
		}
	}
	for k := range m.others {
		if m.others[k].name != "" && !machine.Watches(OtherWatch, m.others[k].name) {
			m.others[k] = handle{}
		}
	}
	if !machine.Watches(QueueWatch, "") {
		m.queue = handle{}
	}
	if m.user.proven && before.proven && before.lapses != c.lapses && m.user == before {
		w.fail("%s is not notified that its lease had ended before it was renewed", machine.znode.name)
	}
	if machine.Leaving() {
		w.verifyReason(m)
		w.discardStateOfLeaver(m)
	}
}

// discardStateOfLeaver removes what does not matter after a contender has left.
func (w *model) discardStateOfLeaver(m *member) {
	m.own, m.others, m.queue, m.timers, m.proved = handle{}, [2]handle{}, handle{}, 0, false
	matters := func(k RequestKind) bool {
		return m.ended == running && (k == Create || k == Delete || k == Search)
	}
	m.calls = slices.DeleteFunc(m.calls, func(q call) bool { return !matters(q.request.Kind) })
	m.inbox = slices.DeleteFunc(m.inbox, func(r *answered) bool { return !matters(r.request.Kind) })
	if m.ended != running {
		m.notified = false
	}
}

// execute executes an output of the state machine, as package queue does.
func (w *model) execute(m *member, i int, o *Output) {
	c := w.conn(m.conn)
	switch o.Kind {
	case Report:
		w.report(m, i, &o.State)
	case Set:
		if (defaultTimers|w.scenario.timers)&(1<<o.Timer) != 0 {
			m.timers |= 1 << o.Timer
		}
	case Stop:
		m.timers &^= 1 << o.Timer
	case Prove:
		w.prove(m, o)
	case Rest:
		m.proving = ""
	case Bury:
		c.deleting = append(c.deleting, o.Name)
	case Finish:
		m.ended, m.proving = finished, ""
		if o.Err != nil {
			m.ended = failed
		}
	case Ignoring, Removing:
	default:
		panic(fmt.Sprintf("the model does not know the output %d", o.Kind))
	}
}

// prove starts the checks of a contender's znode. A valid lease of the connection continues.
func (w *model) prove(m *member, o *Output) {
	m.proving, m.missing, m.proved = o.Name, false, true
	if m.fresh {
		w.setProven(m.conn, true)
	}
}

// setProven changes whether the lease of a connection is valid.
func (w *model) setProven(i int, proven bool) {
	c := w.conn(i)
	if proven {
		w.session(c.session).leased = true
	}
	if c.proven == proven {
		return
	}
	if c.proven = proven; !proven {
		c.lapses++
	}
	for _, j := range w.on(i) {
		w.member(j).notified = true
	}
}

// renounce ends the lease of a connection, because its session has changed.
func (w *model) renounce(c *conn) {
	for i := range w.scenario.conns {
		if w.conns[i] == c {
			w.setProven(i, false)
		}
	}
}

// age lets so much time pass that the lease of session s has ended, and that checks and creates that were sent
// before do not prove a lease any more.
func (w *model) age(s *session) {
	s.leased = false
	if s.conn < 0 {
		return
	}
	c := w.conn(int(s.conn))
	if c.check.state != noCheck && c.check.session == s.id {
		c.check.stale = true
	}
	for _, j := range w.on(int(s.conn)) {
		w.member(j).fresh = false
	}
	if c.session == s.id {
		w.setProven(int(s.conn), false)
	}
}

// takeCheck lets the monitor of a connection take the reply to its check.
func (w *model) takeCheck(i int) {
	c := w.conn(i)
	is := c.check
	c.check = check{}
	if is.session != c.session {
		return
	}
	for _, j := range w.on(i) {
		if is.missing[j] && w.members[j].proving == is.paths[j] {
			m := w.member(j)
			m.missing, m.proving, m.notified = true, "", true
		}
	}
	if !is.stale {
		w.setProven(i, true)
	}
}

// takeReply lets the driver take a reply that was received.
func (w *model) takeReply(i, k int) {
	m := w.member(i)
	r := m.inbox[k]
	m.inbox = slices.Delete(m.inbox, k, k+1)
	q, reply := &r.request, &r.reply
	switch {
	case q.Kind == Create && reply.Err != nil:
		m.fresh = false
	case reply.Err != nil:
	case q.Kind == Delete:
		for _, j := range w.on(m.conn) {
			for k := range w.members[j].others {
				if h := &w.member(j).others[k]; h.name == q.Name && h.sameSession {
					h.departed = true
				}
			}
		}
	case q.Kind == ReadOwn:
		m.own = r.watch
	case q.Kind == ReadPredecessor, q.Kind == ReadBefore:
		h := r.watch
		h.sameSession = reply.Owner == w.conns[m.conn].session
		m.keep(h)
	case q.Kind == List && q.Watched:
		m.queue = r.watch
	}
	w.input(i, &Input{Kind: Replied, Request: *q, Reply: *reply})
}

// keep keeps a watch on another contender. It replaces a watch on the same znode, or else a watch that
// the state machine does not need any more.
func (m *member) keep(h handle) {
	slot := 0
	for k := range m.others {
		switch o := &m.others[k]; {
		case o.name == h.name:
			slot = k
		case o.name == "" && m.others[slot].name != h.name:
			slot = k
		}
	}
	m.others[slot] = h
}

// takeEvent lets the driver take the event of a watch on another contender.
func (w *model) takeEvent(i, k int) {
	m := w.member(i)
	h := m.others[k]
	m.others[k] = handle{}
	in := &Input{Kind: Fired, Watch: OtherWatch, Name: h.name, Err: h.event.err(), Safe: true}
	if h.event == Deleted {
		in.Safe = !h.sameSession || h.departed && w.conns[m.conn].up
		w.countWake(h.name)
	}
	w.input(i, in)
}

// takeQueueEvent lets the driver take the event of the watch on the queue.
func (w *model) takeQueueEvent(i int) {
	m := w.member(i)
	h := m.queue
	m.queue = handle{}
	w.input(i, &Input{Kind: Fired, Watch: QueueWatch, Err: h.event.err()})
}

// countWake counts the contenders that the deletion of a znode has woken.
func (w *model) countWake(name string) {
	if i := memberOf(name); i >= 0 && w.scenario.countsWakes {
		m := w.member(i)
		if m.wakes++; m.wakes > 2 {
			w.fail("the deletion of %s has woken more than two contenders", name)
		}
	}
}

// report delivers a state to the user.
func (w *model) report(m *member, i int, s *State) {
	was := m.user
	m.user = user{next: s.Next, first: s.First, proven: s.Proven, session: s.Session, token: s.Token, lapses: w.conns[m.conn].lapses}
	if m.machine.Leaving() {
		m.timers = 0
	}
	if s.Proven && !s.First {
		w.fail("%s is proven and not first", s.Name)
	}
	if s.Next {
		w.verifyNext(i, s)
	}
	if !s.Proven || was.proven && was.token == s.Token {
		return
	}
	if w.scenario.permits > 0 {
		return
	}
	if m.headed&attemptOf(s.Name) == 0 {
		w.fail("%s leads, and its znode never was the head of the queue", s.Name)
	}
	if m.exempt {
		return
	}
	for j := range w.scenario.members {
		if other := w.members[j]; j != i && other.user.proven && !other.exempt {
			w.fail("%s leads, and %s was not notified that it does not lead any more", s.Name, other.machine.znode.name)
		}
	}
	if s.Token < w.token || s.Token == w.token && int8(i) != w.leader {
		w.fail("%s leads with the token %d, which is not greater than that of the leader before", s.Name, s.Token)
	}
	w.token, w.leader = s.Token, int8(i)
}

// number returns the digits of a sequence number, with which a name ends.
func number(sequence int32) string { return fmt.Sprintf("%010d", sequence) }

// describeInput returns an input as text.
func describeInput(in *Input) string {
	switch in.Kind {
	case Start:
		return "start"
	case ConnChanged:
		return "the state of the connection may have changed"
	case Replied:
		if in.Reply.Err != nil {
			return fmt.Sprintf("reply to %v: %v", in.Request, in.Reply.Err)
		}
		text := fmt.Sprintf("reply to %v", in.Request)
		switch in.Request.Kind {
		case Create:
			text += fmt.Sprintf(": %s, session %d", in.Reply.Name, in.Reply.Session)
		case FindContender:
			text += fmt.Sprintf(": %s, not %v", in.Reply.Name, in.Reply.Names)
		case List, Search:
			text += fmt.Sprintf(": %v", in.Reply.Names)
		case ReadOwn, Inspect, ReadPredecessor, ReadBefore:
			text += fmt.Sprintf(": owner %d", in.Reply.Owner)
		}
		if in.Reply.Doubt {
			text += ", its watch is in doubt"
		}
		return text
	case Fired:
		what := "data changed"
		if in.Err != nil {
			what = in.Err.Error()
		}
		if !in.Safe && in.Watch == OtherWatch {
			what += ", perhaps with the session"
		}
		return fmt.Sprintf("event of %s: %s", in.Name, what)
	case Expired:
		return fmt.Sprintf("timer %d", in.Timer)
	default:
		return "asked to leave"
	}
}
