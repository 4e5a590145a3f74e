package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// scheduleRun is one run of a schedule. Only the goroutine that runs the steps uses its fields,
// except the history, running and the atomic values.
type scheduleRun struct {
	schedule
	*faultschedule.Trial
	history    *electionHistory
	operator   *zk.Conn
	conns      []*sharedConn
	members    []*member
	running    sync.WaitGroup
	ended      bool        // the test has called EndElection
	rebuilt    bool        // the servers have lost their data
	endPending atomic.Bool // EndElection has not returned yet
	closing    atomic.Bool // the test will close the operator's connection
}

// resignLimit is the time within which Resign and EndElection must return.
const resignLimit = 2 * time.Second

// runSchedule runs a schedule and returns its history. If verbose is set, the history also contains the requests
// that the servers have received.
func runSchedule(t *testing.T, s schedule, verbose bool) *faultschedule.History {
	return s.Execute(t, verbose, func(x *faultschedule.Trial) faultschedule.Test {
		return &scheduleRun{schedule: s, Trial: x, history: newElectionHistory(x.History)}
	})
}

// Begin creates the election node.
func (r *scheduleRun) Begin() {
	conn, _, err := r.Ensemble.Connect(time.Minute)
	for _, path := range []string{node, register} {
		if err == nil {
			_, err = conn.Create(path, nil, 0, openACL)
		}
	}
	if err != nil {
		r.Violate("cannot start: %v", err)
	}
	r.operator = conn
}

// Perform performs a step of the schedule.
func (r *scheduleRun) Perform(s faultschedule.Step) {
	switch {
	case s.Kind == join:
		r.join(s.Who)
	case s.Kind == isolateLeader:
		r.isolateLeader(s)
	case s.Kind == rebuild:
		r.rebuildServers()
	case s.Kind.OfServer():
		r.Note("server %d: %v", s.Who%r.Servers, s)
		r.Faults.Inject(s, 0, requests)
	default:
		if m := r.choose(s.Who); m != nil {
			r.disturbMember(m, s)
		}
	}
	r.verifyOneLeader()
}

// disturbMember performs a step that affects one candidate and its connection.
func (r *scheduleRun) disturbMember(m *member, s faultschedule.Step) {
	if s.Kind == resign {
		r.resign(m)
		return
	}
	r.Note("%s: %v", m.name, s)
	session := m.conn.SessionID()
	if session == 0 {
		return
	}
	switch s.Kind {
	case operatorDelete:
		r.deleteZnode(m)
	case closeConn:
		r.expectRemovals(m.conn)
		m.conn.closed = true
		m.conn.Close()
	case faultschedule.Expire:
		r.expectRemovals(m.conn)
		r.Faults.Inject(s, session, requests)
	default:
		r.Faults.Inject(s, session, requests)
	}
}

// deleteZnode deletes the znode of a candidate in the name of an operator.
func (r *scheduleRun) deleteZnode(m *member) {
	id := m.id()
	if id == "" {
		return
	}
	r.history.expectRemoval(id)
	r.running.Go(func() {
		err := r.operator.Delete(id, -1)
		for !r.closing.Load() && err != nil && !errors.Is(err, zk.ErrNoNode) {
			time.Sleep(10 * time.Millisecond)
			err = r.operator.Delete(id, -1)
		}
		r.history.setRemoved(id)
		r.Note("operator has deleted the znode of %s: %v", m.name, err)
	})
}

// rebuildServers restarts all servers without their data. Leaderships can overlap afterwards, because the new tree
// contains nothing about the leases of earlier sessions.
func (r *scheduleRun) rebuildServers() {
	r.Note("the servers restart without their data")
	r.rebuilt = true
	for _, m := range r.members {
		r.history.expectRemoval(m.id())
	}
	r.Faults.RestartEmpty()
	for _, m := range r.members {
		r.history.setRemoved(m.id())
	}
}

// isolateLeader cuts off the leader, alone or with its server, until after the session of the leader has expired.
// The lease of the leader must expire before the next candidate leads.
func (r *scheduleRun) isolateLeader(s faultschedule.Step) {
	leaders := r.history.leaders()
	if len(leaders) == 0 {
		return
	}
	i := slices.IndexFunc(r.members, func(m *member) bool { return m.name == leaders[0].who })
	m := r.members[i]
	session := m.conn.SessionID()
	r.Note("%s: %v", m.name, s)
	cut := faultschedule.Step{Kind: faultschedule.Isolate, Duration: 2*r.Timeout + s.Duration}
	r.Faults.Exclude(session, cut.Duration) // the client must not reconnect to another server
	for _, x := range r.Ensemble.Server(0).Sessions() {
		if s.N%2 == 0 && x.ID == session && x.Server >= 0 && r.Servers > 1 {
			cut.Kind, cut.Who = faultschedule.Partition, x.Server
		}
	}
	r.Faults.Inject(cut, session, requests)
}

// verifyOneLeader verifies that there is at most one leader at this instant.
func (r *scheduleRun) verifyOneLeader() {
	synctest.Wait()
	var leaders []string
	for _, l := range r.history.leaders() {
		if !r.history.isRemovalExpected(l.id) {
			leaders = append(leaders, l.who)
		}
	}
	if len(leaders) > 1 {
		r.Violate("%v lead at the same time", leaders)
	}
}

// recoveryLimit returns the time within which a candidate must become the leader after all faults are healed: the
// time for a session that must expire first, for the reconnects of clients (up to a second after the client library
// has tried all servers, and its timeouts), and for a check.
func (r *scheduleRun) recoveryLimit() time.Duration { return 3*r.Timeout + 2*r.Tick + 4*time.Second }

// eventually waits until problem returns "", for at most d. Otherwise it records a violation with the name and the
// last problem.
func (r *scheduleRun) eventually(d time.Duration, name string, problem func() string) {
	for end := r.Now() + d; ; time.Sleep(d / 64) {
		synctest.Wait()
		p := problem()
		if p == "" {
			return
		}
		if r.Now() >= end {
			r.Violate("%s after %v: %s", name, d, p)
			return
		}
	}
}

// End heals all faults, verifies that a candidate becomes the leader, and makes all candidates leave.
func (r *scheduleRun) End() {
	if r.ending == endElectionDuringFaults {
		r.endElection()
	}
	r.Heal()
	if !r.ended {
		r.eventually(r.recoveryLimit(), "no leader", func() string {
			if len(r.active()) > 0 && len(r.history.leaders()) == 0 {
				return fmt.Sprintf("%d candidates wait", len(r.active()))
			}
			return ""
		})
		r.eventually(r.recoveryLimit(), "the znodes are not those of the active candidates", r.znodesDiffer)
		r.eventually(r.recoveryLimit(), "watches remain", r.unneededWatch)
		r.verifyOneLeader()
	}
	switch r.ending {
	case resignTogether:
		for _, m := range r.active() {
			r.resign(m)
		}
	case resignInTurn:
		for _, m := range r.active() {
			r.resign(m)
			r.Advance(r.Timeout / 8)
		}
	case endElection:
		r.endElection()
	}
	r.eventually(2*r.recoveryLimit(), "candidacies are not over", func() string {
		var names []string
		for _, m := range r.members {
			if !m.isOver() {
				names = append(names, m.name)
			}
		}
		return strings.Join(names, " ")
	})
	r.eventually(2*r.recoveryLimit(), "znodes remain", func() string {
		tree := r.Ensemble.Tree()
		if !strings.Contains(tree, "latch") && !strings.Contains(tree, "n_") && (r.rebuilt || strings.Contains(tree, "election") != r.ended) {
			return ""
		}
		return tree
	})
	r.eventually(r.recoveryLimit(), "watches remain at the end", r.unneededWatch)
	r.eventually(r.recoveryLimit(), "EndElection does not return", func() string {
		if r.endPending.Load() {
			return "it was called"
		}
		return ""
	})
	for _, c := range r.conns {
		if !c.closed {
			c.Close()
		}
	}
	r.closing.Store(true)
	r.operator.Close()
	r.running.Wait()
	r.history.verify(2*r.Latency, r.reported/2+2*r.Latency+r.reported/4)
}

// endElection ends the election for all candidates.
func (r *scheduleRun) endElection() {
	m := r.choose(int(r.Seed))
	if m == nil || m.id() == "" || m.conn.closed {
		r.ending = resignTogether
		return
	}
	r.Note("%s: ends the election", m.name)
	r.ended = true
	r.Ensemble.Server(0).After(zktest.Match{Op: zktest.OpMulti, Path: node + "/DONE"}, func(q *zktest.Request) zktest.Verdict {
		if q.Code == 0 {
			r.history.setEnd()
		}
		return zktest.Verdict{}
	})
	r.endPending.Store(true)
	r.running.Go(func() {
		start := time.Now()
		err := m.election.EndElection()
		r.endPending.Store(false)
		r.Note("%s: has ended the election: %v", m.name, err)
		if d := time.Since(start); d > resignLimit {
			r.Violate("%s: EndElection took %v", m.name, d)
		}
		if err != nil && !errors.Is(err, leaderelection.ErrUnconfirmed) {
			r.Violate("%s: EndElection: %v", m.name, err)
		}
	})
}

// znodesDiffer describes how the children of the election node differ from the znodes of the active candidates, or
// returns "".
func (r *scheduleRun) znodesDiffer() string {
	tree := r.Ensemble.Tree()
	want := 0
	for _, m := range r.active() {
		id := m.id()
		if id == "" {
			return m.name + " has no znode yet"
		}
		want++
		if !r.hasZnode(id) {
			return fmt.Sprintf("%s is active without its znode %s:\n%s", m.name, id, tree)
		}
	}
	if got := strings.Count(tree, "\n    "); got != want {
		return fmt.Sprintf("%d znodes of %d active candidates:\n%s", got, want, tree)
	}
	return ""
}

func (r *scheduleRun) hasZnode(id string) bool {
	return id != "" && strings.Contains(r.Ensemble.Tree(), "    "+strings.TrimPrefix(id, node+"/")+" ")
}

// unneededWatch describes a watch that no active candidate needs, or returns "". Each candidate watches its own
// znode and the znode of its predecessor. A follower that leaves keeps its watch on the predecessor until the
// predecessor leaves; the servers count one such watch for each connection.
func (r *scheduleRun) unneededWatch() string {
	type watch struct {
		session int64
		path    string
	}
	own, active := map[watch]bool{}, map[string]bool{}
	for _, m := range r.active() {
		own[watch{m.conn.SessionID(), m.id()}], active[m.id()] = true, true
	}
	for _, x := range r.Ensemble.Server(0).Watches() {
		needed := own[watch{x.Session, x.Path}]
		if x.Kind == zktest.DataWatch {
			needed = active[x.Path]
		}
		if !needed && !r.mayRemain(x) {
			return fmt.Sprintf("%v of session %x at %s", x.Kind, x.Session, x.Path)
		}
	}
	return ""
}

// mayRemain reports whether a watch that no candidate needs is expected: when a session expires, the client library
// sends queued requests, also requests that set watches, in the next session.
func (r *scheduleRun) mayRemain(x zktest.Watch) bool {
	return slices.ContainsFunc(r.members, func(m *member) bool {
		if m.conn.SessionID() != x.Session {
			return false
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.session != x.Session && slices.Contains(m.watched, x.Path)
	})
}
