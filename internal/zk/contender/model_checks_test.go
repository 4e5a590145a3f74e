package contender

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// This file contains what must be true in every state.

// fail records that the state violates a rule.
func (w *model) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

// leads reports whether a contender is a leader: its user was notified, and the lease is valid.
func (w *model) leads(i int) bool {
	u := w.members[i].user
	s := w.session(u.session)
	return u.proven && s != nil && s.leased
}

// verify checks the rules that every state must satisfy.
func (w *model) verify() {
	w.noteHead()
	holders, permits := 0, max(w.scenario.permits, 1)
	for i := range w.scenario.members {
		m := w.members[i]
		if m.ended == finished {
			w.verifyDeparted(i)
		}
		if !w.leads(i) || m.exempt {
			continue
		}
		holders++
		switch name, of := m.machine.znode.name, m.machine.cfg.QueueCzxid; {
		case of != 0 && of != w.tree.queue:
			w.fail("%s leads in another queue", name)
		case w.tree.find(name) == nil:
			w.fail("%s leads, and its znode does not exist", name)
		case w.ahead(i) >= permits:
			w.fail("%s leads, and %d contenders come before it", name, w.ahead(i))
		}
	}
	if holders > permits {
		w.fail("%d contenders lead", holders)
	}
}

// ahead returns the number of ephemeral znodes of others before the znode of contender i.
func (w *model) ahead(i int) (n int) {
	for k := range w.tree.nodes {
		switch node := &w.tree.nodes[k]; {
		case node.name == w.members[i].machine.znode.name:
			return n
		case node.session != 0 && memberOf(node.name) != i:
			n++
		}
	}
	return n
}

// verifyNext requires that at most one contender is ahead of contender i, which reports that it is the next one. A
// listing has shown only one contender ahead of it, and earlier contenders can only leave.
func (w *model) verifyNext(i int, s *State) {
	switch {
	case s.First, s.Predecessor == "", w.scenario.permits > 0:
		w.fail("%s is next without a predecessor, or shares its turn", s.Name)
	case w.tree.find(s.Name) != nil && w.ahead(i) > 1:
		w.fail("%s is next, and %d contenders come before it", s.Name, w.ahead(i))
	}
}

// verifyQuietShared does what verifyQuiet does for the contenders of verifyShared: those that have
// a permit have their turn, and the others watch what can bring it.
func (w *model) verifyQuietShared() {
	for i := range w.scenario.members {
		m := w.members[i]
		name := m.machine.znode.name
		if p := m.machine.phase; p != queued && p != holding {
			continue
		}
		watches := func(name string) bool {
			return slices.Contains(w.conns[m.conn].server, watchKey{name, dataWatch})
		}
		switch ahead := w.ahead(i); {
		case ahead < w.scenario.permits && !m.user.proven:
			w.fail("nothing happens any more, and %s does not have its turn", name)
		case ahead == w.scenario.permits && !watches(queueName):
			w.fail("nothing happens any more, and %s, the next contender, does not watch the queue", name)
		case ahead > w.scenario.permits && !watches(m.machine.queue.predecessor.name):
			w.fail("nothing happens any more, and %s does not watch its predecessor", name)
		}
	}
}

// admitFirst returns a policy by which the first n contenders have their turn: a simple form of the policy of a
// semaphore.
func admitFirst(n int) func(Listing) Admission {
	return func(l Listing) Admission {
		own, _ := Sequence(l.Own)
		ahead, followed := 0, false
		for _, name := range l.Names {
			sequence, ok := Sequence(name)
			switch {
			case !ok, name == l.Own, !l.Counts(name):
			case IsBefore(sequence, own):
				ahead++
			default:
				followed = true
			}
		}
		switch {
		case ahead < n:
			return Admission{Place: First, Followed: followed}
		case ahead == n:
			return Admission{Place: BehindHolders}
		}
		return Admission{}
	}
}

// noteHead finds the contender that the head of the queue belongs to, and records in headed which of its znodes are
// there.
func (w *model) noteHead() {
	head := -1
	for k := range w.tree.nodes {
		n := &w.tree.nodes[k]
		i := memberOf(n.name)
		switch {
		case n.session == 0:
			continue
		case i < 0, head >= 0 && i != head:
			return
		}
		if head = i; w.members[i].headed&attemptOf(n.name) == 0 {
			w.member(i).headed |= attemptOf(n.name)
		}
	}
}

// verifyDeparted requires that nothing is left of a contender that has left, except a znode of an
// expired session.
func (w *model) verifyDeparted(i int) {
	c := w.conns[w.members[i].conn]
	for k := range w.tree.nodes {
		if n := &w.tree.nodes[k]; memberOf(n.name) == i && n.session == c.session {
			w.fail("%s exists, and its contender has left", n.name)
		}
	}
}

// verifyReason checks the reason why a contender has left.
func (w *model) verifyReason(m *member) {
	c, cfg := w.conns[m.conn], m.machine.cfg
	operated := w.scenario.budget[operators] > w.budget[operators]
	switch reason := m.machine.reason; {
	case reason == connection.ErrSessionExpired && c.count == 1 && c.session != 0:
		w.fail("the session has not expired")
	case errors.Is(reason, connection.ErrAmbiguous):
		w.fail("two contenders have the same sequence number")
	case reason == connection.ErrElectionOver && w.deleting == 0 && cfg.QueueCzxid == w.tree.queue:
		w.fail("the queue has not ended")
	case reason == zk.ErrNoNode && (!cfg.QueueMayVanish && !cfg.QueueUnconfirmed || cfg.QueueCzxid == w.tree.queue):
		w.fail("the queue that the contender has found exists")
	case reason == connection.ErrDeleted && !operated && !cfg.CanMakeQueue && cfg.Patience == 0:
		w.fail("no operator has deleted the znode")
	}
}

// verifyQuiet checks a state in which nothing happens any more, except faults and requests of clients to leave.
func (w *model) verifyQuiet() {
	for i := range w.scenario.members {
		m := w.members[i]
		name := m.machine.znode.name
		switch p := m.machine.phase; {
		case p == joining && w.mustWait(i), p == gone:
		case p == joining, p == lost, p == leaving:
			w.fail("nothing happens any more, and %c is %s", 'a'+i, [...]string{"joining", "queued", "holding", "lost", "leaving"}[p])
		case w.tree.find(name) == nil:
			w.fail("nothing happens any more, and %s does not know that its znode was deleted", name)
		}
	}
	if w.scenario.permits > 0 {
		w.verifyQuietShared()
		return
	}
	w.verifyWaiting()
	for k := range w.tree.nodes {
		n := &w.tree.nodes[k]
		i := memberOf(n.name)
		if n.session == 0 {
			continue
		}
		if w.tree.ended && i >= 0 && n.version == 0 {
			w.fail("nothing happens any more, and %s does not know that the queue has ended", n.name)
		}
		if i >= 0 && !(w.members[i].user.proven && w.members[i].machine.znode.name == n.name) {
			w.fail("nothing happens any more, and %s, the head of the queue, does not lead", n.name)
		}
		return
	}
}

// verifyWaiting requires that each contender in the queue watches its znode, its predecessor and the contender
// before its predecessor, and that the next contender can lead without a request.
func (w *model) verifyWaiting() {
	var before, predecessor string
	for k := range w.tree.nodes {
		n := &w.tree.nodes[k]
		if n.session == 0 {
			// Only the contenders directly behind the znode know that it is persistent.
			before, predecessor = predecessor, n.name
			continue
		}
		if i := memberOf(n.name); i >= 0 && w.members[i].machine.phase == queued && w.members[i].machine.znode.name == n.name {
			m := w.members[i]
			watches := func(name string, kind watchKind) bool {
				return slices.Contains(w.conns[m.conn].server, watchKey{name, kind})
			}
			switch {
			case !watches(predecessor, dataWatch):
				w.fail("nothing happens any more, and %s does not watch its predecessor", n.name)
			case !m.machine.looksAhead() && m.machine.cfg.Admit == nil && m.machine.queue.place != next && !m.machine.timers.set.has(PrepareTimer):
				w.fail("nothing happens any more, and %s never prepares for its turn", n.name)
			case !m.machine.looksAhead():
			case !watches(n.name, childWatch):
				w.fail("nothing happens any more, and %s does not watch its znode", n.name)
			case before != "" && Recognized(before) && !watches(before, dataWatch):
				w.fail("nothing happens any more, and %s does not watch %s", n.name, before)
			case before == "" && (m.machine.queue.place != next || !m.user.next):
				w.fail("nothing happens any more, and %s does not know that it is next", n.name)
			}
		}
		before, predecessor = predecessor, n.name
	}
}

// schedule returns the steps of a trace as text.
func schedule(trace []string) string {
	var text strings.Builder
	step := 0
	for _, line := range trace {
		if !strings.HasPrefix(line, " ") {
			step++
			fmt.Fprintf(&text, "%4d. ", step)
		}
		text.WriteString(line + "\n")
	}
	return text.String()
}
