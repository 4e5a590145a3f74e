package contender

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// This file contains the canonical encoding of states: two states with the same encoding have the
// same future. Epochs, lapses and the numbers of changes are encoded as differences.

// key identifies a state.
type key [16]byte

// encoder appends to b the bytes that identify a state.
type encoder struct{ b []byte }

func (e *encoder) byte(v ...byte) { e.b = append(e.b, v...) }

func (e *encoder) bools(v ...bool) {
	var bits uint32
	for i, set := range v {
		if set {
			bits |= 1 << i
		}
	}
	e.byte(byte(bits), byte(bits>>8), byte(bits>>16))
}

// name appends a name of the model.
func (e *encoder) name(name string) {
	switch n := len(name); {
	case n == 0:
		e.byte(0)
	case name == tombstone:
		e.byte(1)
	default:
		e.byte(name[0], name[1], name[2], name[n-2], name[n-1])
	}
}

func (e *encoder) names(names []string) {
	e.byte(byte(len(names)))
	for _, name := range names {
		e.name(name)
	}
}

// prefix appends the beginning of a name.
func (e *encoder) prefix(prefix string) { e.byte(prefix[0], prefix[1]) }

// errorsOfModel contains the errors that can occur in a state of the model.
var errorsOfModel = []error{
	nil, zk.ErrNoNode, ErrLost, connection.ErrConnClosed, connection.ErrSessionExpired, connection.ErrDeleted,
	connection.ErrElectionOver, connection.ErrUnreachable, connection.ErrNodeExhausted, connection.ErrAmbiguous, errAsked,
}

// errAsked is the reason of contenders that are asked to leave.
var errAsked = errors.New("asked to leave")

func (e *encoder) err(err error) {
	i := slices.IndexFunc(errorsOfModel, func(known error) bool { return errors.Is(err, known) })
	if i < 0 {
		panic(fmt.Sprintf("the model does not know the error %v", err))
	}
	e.byte(byte(i))
}

// key returns a hash that is equal for equal states, and the buffer for the next call.
func (w *model) key(scratch []byte) (key, []byte) {
	e := encoder{scratch[:0]}
	e.model(w)
	sum := sha256.Sum256(e.b)
	return key(sum[:16]), e.b
}

func (e *encoder) model(w *model) {
	e.tree(w.base)
	e.byte(byte(len(w.log)), byte(w.creates), w.foreign, w.deleting, byte(w.token), byte(w.leader))
	for i := range w.log {
		ch := &w.log[i]
		e.byte(byte(ch.kind), byte(ch.session))
		e.bools(ch.reversed)
		e.name(ch.name)
		e.node(&ch.node)
	}
	e.byte(byte(len(w.ghosts)))
	for _, g := range w.ghosts {
		e.prefix(g.name)
		e.byte(byte(g.session))
	}
	e.byte(w.budget[:]...)
	for _, s := range w.sessions {
		e.byte(byte(s.id))
		e.bools(s.alive, s.leased)
	}
	for i := range w.scenario.conns {
		e.conn(w, w.conns[i])
	}
	for i := range w.scenario.members {
		e.member(w, w.members[i])
	}
}

func (e *encoder) node(n *znode) {
	e.name(n.name)
	e.byte(byte(n.session), byte(n.czxid), byte(n.version))
}

func (e *encoder) tree(t *tree) {
	e.byte(byte(len(t.nodes)), byte(t.queue))
	e.bools(t.ended)
	for i := range t.nodes {
		e.node(&t.nodes[i])
	}
}

func (e *encoder) handle(h *handle) {
	if e.name(h.name); h.name != "" {
		e.byte(byte(h.kind), byte(h.event))
		e.bools(h.fired, h.sameSession, h.departed)
	}
}

func (e *encoder) request(c *conn, r *Request) {
	e.byte(byte(r.Kind), byte(c.epoch-r.Epoch))
	e.bools(r.Watched, r.Reset, r.Last)
	e.name(r.Name)
	e.byte(byte(len(r.Prefixes)))
	for _, prefix := range r.Prefixes {
		e.prefix(prefix)
	}
	e.names(r.Names)
}

func (e *encoder) answered(c *conn, a *answered) {
	e.request(c, &a.request)
	r := &a.reply
	e.err(r.Err)
	if r.Prefix != "" {
		e.prefix(r.Prefix)
	}
	e.name(r.Name)
	e.names(r.Names)
	e.byte(byte(r.Session), byte(r.Owner), byte(r.Token), byte(r.QueueCzxid), byte(r.Version), byte(a.session))
	if a.request.Kind == List {
		e.byte(byte(c.tree.changes - a.version))
	} else {
		e.byte(byte(a.version))
	}
	e.byte(byte(r.Others))
	e.name(r.Predicted)
	e.bools(r.Ephemeral, r.Alone, r.Ended, r.Doubt, a.set, a.doubt)
	e.handle(&a.watch)
}

func (e *encoder) conn(w *model, c *conn) {
	e.byte(byte(c.session), c.count, byte(c.check.state), byte(len(c.net)), byte(len(c.pool)), byte(len(c.server)))
	e.bools(c.up, c.dying, c.closing, c.closedByOwner, c.closed, c.proven, c.resend, c.busy != nil)
	if c.check.state != noCheck {
		e.byte(byte(c.check.session))
		e.bools(c.check.stale)
		for i := range c.check.paths {
			e.name(c.check.paths[i])
			e.bools(c.check.missing[i])
		}
	}
	e.byte(byte(w.head()-c.applied), byte(w.head()-c.seen))
	for i := range c.net {
		switch it := &c.net[i]; it.member {
		case anEvent:
			e.byte(0xff, byte(it.event.event))
			e.name(it.event.name)
		case ofACheck:
			e.byte(0xfe, byte(w.head()-it.zxid))
		default:
			e.byte(byte(it.member), byte(w.head()-it.zxid))
			e.answered(c, it.reply)
		}
	}
	// The order of watches has no meaning.
	slices.SortFunc(c.pool, func(a, b pooled) int { return compareKeys(&a.watchKey, &b.watchKey) })
	for i := range c.pool {
		p := &c.pool[i]
		e.name(p.name)
		version := p.version
		if p.name == queueName {
			version = c.tree.changes - version
		}
		e.byte(byte(p.kind), byte(c.epoch-p.epoch), byte(version))
	}
	slices.SortFunc(c.server, func(a, b watchKey) int { return compareKeys(&a, &b) })
	for i := range c.server {
		e.name(c.server[i].name)
		e.byte(byte(c.server[i].kind))
	}
	if p := c.busy; p != nil {
		e.byte(byte(p.member), byte(w.head()-p.upTo))
		e.bools(p.search)
		if p.reply != nil {
			e.answered(c, p.reply)
		}
	}
	e.names(c.deleting)
}

func compareKeys(a, b *watchKey) int {
	switch {
	case a.name < b.name:
		return -1
	case a.name > b.name:
		return 1
	}
	return int(a.kind) - int(b.kind)
}

func (e *encoder) member(w *model, m *member) {
	c := w.conns[m.conn]
	e.byte(byte(m.ended), m.attempts, byte(len(m.calls)), byte(len(m.inbox)), m.timers, m.wakes)
	e.bools(m.proved, m.notified, m.missing, m.fresh, m.created, m.createIsLate, m.asked, m.exempt, m.user.next, m.user.first, m.user.proven,
		m.user.proven && m.user.lapses != c.lapses)
	e.byte(byte(m.user.session), byte(m.user.token), m.headed)
	if m.ended != running {
		e.prefixes(m.machine)
		return
	}
	slices.SortFunc(m.calls, func(a, b call) int { return int(a.request.Kind) - int(b.request.Kind) })
	for i := range m.calls {
		q := &m.calls[i]
		e.request(c, &q.request)
		e.byte(byte(q.session), q.stage)
		if q.prefix != "" {
			e.prefix(q.prefix)
		}
		e.bools(q.set, q.doubt)
		e.handle(&q.watch)
	}
	slices.SortFunc(m.inbox, func(a, b *answered) int { return int(a.request.Kind) - int(b.request.Kind) })
	for _, r := range m.inbox {
		e.answered(c, r)
	}
	e.handle(&m.own)
	h := m.others
	if h[0].name > h[1].name {
		h[0], h[1] = h[1], h[0] // the order has no effect: equal states have equal encodings
	}
	e.handle(&h[0])
	e.handle(&h[1])
	e.handle(&m.queue)
	e.name(m.proving)
	e.machine(c, m.machine)
}

func (e *encoder) prefixes(c *Contender) {
	e.byte(byte(len(c.creates.prefixes)))
	for _, prefix := range c.creates.prefixes {
		e.prefix(prefix)
	}
}

// machine appends the fields of a state machine. It omits conn and out, which are set only during a step, and cfg,
// which is constant.
func (e *encoder) machine(of *conn, c *Contender) {
	e.byte(byte(c.phase), byte(c.pending), byte(c.pending>>8), byte(c.timers.set), byte(c.timers.expired))
	e.bools(c.creates.unanswered, c.creates.searched, c.queue.notify, c.watches.reset, c.watches.queue, c.lease.proving,
		c.reported.Proven && c.lease.lapses != of.lapses)
	e.name(c.znode.name)
	e.byte(byte(c.znode.session), byte(c.znode.token))
	e.name(c.znode.renamingTo)
	e.prefixes(c)
	e.names(c.creates.found)
	e.names(c.creates.orphans)
	e.name(c.creates.outlived)
	e.byte(byte(c.queue.list), byte(of.epoch-c.queue.epoch), byte(c.queue.place), byte(c.queue.blocking))
	for _, o := range []*other{&c.queue.predecessor, &c.queue.before} {
		if e.name(o.name); o.name != "" || o.gone() {
			e.byte(byte(o.znode))
			e.bools(o.verified)
		}
	}
	e.names(c.queue.unverified)
	e.names(c.queue.ignored)
	e.byte(byte(of.epoch-c.watches.epoch), byte(c.watches.own))
	e.err(c.reason)
	e.name(c.reported.Name)
	e.name(c.reported.Predecessor)
	e.bools(c.reported.Next, c.reported.First, c.reported.Proven)
	e.byte(byte(c.reported.Session), byte(c.reported.Token))
}

// TestExploreEncoding_Complete checks that the encoding and the copy of a state contain each field of the
// state machine.
func TestExploreEncoding_Complete(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{Contender{}, "cfg conn out phase pending timers znode creates queue watches lease reason reported"},
		{ownZnode{}, "name session token renamingTo"},
		{creates{}, "prefixes unanswered searched found orphans outlived"},
		{knowledge{}, "list place notify blocking epoch predecessor before unverified ignored"},
		{other{}, "name verified znode"},
		{watches{}, "epoch reset own queue"},
		{timers{}, "set expired"},
		{lease{}, "proving lapses"},
		{State{}, "Name Predecessor Next First Proven Session Token Err"},
		{Request{}, "Kind Name To Watched Epoch Reset Prefixes Names Last Err"},
		{Reply{}, "Err Prefix Name Names Session Owner Token QueueCzxid Version Ephemeral Alone Ended Predicted Others Doubt"},
	} {
		var names []string
		for i := range reflect.TypeOf(c.value).NumField() {
			names = append(names, reflect.TypeOf(c.value).Field(i).Name)
		}
		require.Equal(t, strings.Fields(c.want), names, "%T: extend the encoder and member.fork", c.value)
	}
}
