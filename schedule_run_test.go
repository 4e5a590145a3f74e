package leaderelection_test

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
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// scheduleRun is one run of a schedule. Only the goroutine that runs the steps uses its fields,
// except the history, running and the atomic values.
type scheduleRun struct {
	schedule
	history    *electionHistory
	ensemble   *zktest.Ensemble
	faults     *faultschedule.Faults
	operator   *zk.Conn
	conns      []*sharedConn
	members    []*member
	running    sync.WaitGroup
	ended      bool        // EndElection was called
	rebuilt    bool        // the servers have lost their data
	endPending atomic.Bool // EndElection has not returned yet
	closing    atomic.Bool // the operator's connection will be closed
}

// resignLimit is the time in which Resign and EndElection return.
const resignLimit = 2 * time.Second

// runSchedule runs a schedule in a bubble and returns its history. If verbose is set, the history
// contains the requests that the servers have received.
func runSchedule(t *testing.T, s schedule, verbose bool) (h *faultschedule.History) {
	synctest.Test(t, func(t *testing.T) {
		h = faultschedule.NewHistory(verbose)
		r := &scheduleRun{schedule: s, history: newElectionHistory(h)}
		r.ensemble = faultschedule.NewEnsemble(t, s.servers, s.tick, s.timeout, verbose)
		r.faults = faultschedule.NewFaults(r.ensemble, s.latency)
		r.createNodes()
		for _, step := range s.steps {
			r.advance(step.wait)
			r.perform(step)
			r.verifyOneLeader()
		}
		r.finish()
		h.AddRequests(r.ensemble)
	})
	return h
}

func (r *scheduleRun) createNodes() {
	conn, _, err := r.ensemble.Connect(time.Minute)
	for _, path := range []string{node, register} {
		if err == nil {
			_, err = conn.Create(path, nil, 0, openACL)
		}
	}
	if err != nil {
		r.history.Violate("cannot start: %v", err)
	}
	r.operator = conn
}

// advance lets time pass, and then waits until all goroutines are blocked.
func (r *scheduleRun) advance(d time.Duration) { bubble.Advance(d) }

func (r *scheduleRun) perform(s step) {
	switch s.action {
	case join:
		r.join(s.who)
	case resign:
		if m := r.choose(s.who); m != nil {
			r.resign(m)
		}
	case dropAll, partition, pause, stop, refuse, lag:
		r.disturbServer(s)
	case isolate:
		r.isolateLeader(s)
	case rebuild:
		r.rebuildServers()
	default:
		if m := r.choose(s.who); m != nil {
			r.disturbMember(m, s)
		}
	}
}

// disturbMember performs a step that affects one candidate and its connection.
func (r *scheduleRun) disturbMember(m *member, s step) {
	r.history.Note("%s: %v", m.name, s)
	session := m.conn.SessionID()
	if session == 0 {
		return
	}
	ops := []zktest.Op{zktest.OpCreate, zktest.OpCreate, zktest.OpMulti, zktest.OpDelete, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpSync, zktest.OpExists, zktest.OpAny}
	match := zktest.Match{Op: ops[s.n%9], Session: session, Nth: 1 + s.n/10%3}
	switch s.action {
	case loseReply:
		r.faults.LoseReply(match)
	case loseRequest:
		r.faults.LoseRequest(match)
	case forget:
		r.faults.FailRequest(zktest.Match{Op: zktest.OpSetWatches, Session: session, Nth: 1}, zktest.Fail(zk.ErrAPIError))
	case drop:
		r.faults.Drop(session)
	case blackhole:
		r.faults.Blackhole(session, s.n, s.duration)
	case slow:
		r.faults.Slow(session, s.duration)
	case strand:
		r.faults.Isolate(session, s.duration)
	case expire:
		r.expectRemovals(m.conn)
		r.faults.Expire(session)
	case operatorDelete:
		r.deleteZnode(m)
	case closeConn:
		r.expectRemovals(m.conn)
		m.conn.closed = true
		m.conn.Close()
	}
}

// deleteZnode deletes the znode of a candidate, as an operator can do.
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
		r.history.Note("operator has deleted the znode of %s: %v", m.name, err)
	})
}

// rebuildServers restarts all servers without their data. Then leaders can overlap, because the new
// tree has no information on the leases of earlier sessions.
func (r *scheduleRun) rebuildServers() {
	r.history.Note("the servers restart without their data")
	r.rebuilt = true
	for _, m := range r.members {
		r.history.expectRemoval(m.id())
	}
	r.faults.RestartEmpty()
	for _, m := range r.members {
		r.history.setRemoved(m.id())
	}
}

// isolateLeader cuts off the leader, alone or with its server, until after its session has
// expired. Its lease must expire before the next candidate leads.
func (r *scheduleRun) isolateLeader(s step) {
	leaders := r.history.leaders()
	if len(leaders) == 0 {
		return
	}
	i := slices.IndexFunc(r.members, func(m *member) bool { return m.name == leaders[0].who })
	m := r.members[i]
	session := m.conn.SessionID()
	r.history.Note("%s: %v", m.name, s)
	d := 2*r.timeout + s.duration
	r.faults.Exclude(session, d) // it must not reconnect to another server
	for _, x := range r.ensemble.Server(0).Sessions() {
		if s.n%2 == 0 && x.ID == session && x.Server >= 0 && r.servers > 1 {
			r.disturbServer(step{action: partition, who: x.Server, duration: d})
			return
		}
	}
	r.faults.Isolate(session, d)
}

// disturbServer performs a step that affects one server.
func (r *scheduleRun) disturbServer(s step) {
	r.history.Note("server %d: %v", s.who%r.servers, s)
	switch s.action {
	case dropAll:
		r.faults.DropAll(s.who)
	case partition:
		r.faults.Partition(s.who, s.duration)
	case lag:
		r.faults.Lag(s.who, 1+s.duration/4, s.duration)
	case pause:
		r.faults.Pause(s.who, s.duration)
	case stop:
		r.faults.Stop(s.who, s.duration)
	case refuse:
		r.faults.Refuse(s.who, s.duration)
	}
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
		r.history.Violate("%v lead at the same time", leaders)
	}
}

// recoveryLimit is the time in which a candidate becomes leader after all faults are healed: a
// session that must expire first, the time until clients reconnect (up to a second after the
// client library has tried all servers, and its timeouts), and a check.
func (r *scheduleRun) recoveryLimit() time.Duration { return 3*r.timeout + 2*r.tick + 4*time.Second }

// eventually waits until problem returns "", for at most d, and records a violation if it does not.
func (r *scheduleRun) eventually(d time.Duration, name string, problem func() string) {
	for end := r.history.Now() + d; ; time.Sleep(d / 64) {
		synctest.Wait()
		p := problem()
		if p == "" {
			return
		}
		if r.history.Now() >= end {
			r.history.Violate("%s after %v: %s", name, d, p)
			return
		}
	}
}

// finish heals all faults, verifies that the election works, and lets all candidates leave.
func (r *scheduleRun) finish() {
	if r.ending == endElectionDuringFaults {
		r.endElection()
	}
	r.faults.HealAll()
	r.history.Note("all faults are healed")
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
			r.advance(r.timeout / 8)
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
		tree := r.ensemble.Tree()
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
	r.history.verify(2*r.latency, r.reported/2+2*r.latency+r.reported/4)
}

// endElection ends the election for all candidates.
func (r *scheduleRun) endElection() {
	m := r.choose(int(r.seed))
	if m == nil || m.id() == "" || m.conn.closed {
		r.ending = resignTogether
		return
	}
	r.history.Note("%s: ends the election", m.name)
	r.ended = true
	r.ensemble.Server(0).After(zktest.Match{Op: zktest.OpMulti, Path: node + "/DONE"}, func(q *zktest.Request) zktest.Verdict {
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
		r.history.Note("%s: has ended the election: %v", m.name, err)
		if d := time.Since(start); d > resignLimit {
			r.history.Violate("%s: EndElection took %v", m.name, d)
		}
		if err != nil && !errors.Is(err, leaderelection.ErrUnconfirmed) {
			r.history.Violate("%s: EndElection: %v", m.name, err)
		}
	})
}

// znodesDiffer returns how the znodes differ from those of the active candidates, or "".
func (r *scheduleRun) znodesDiffer() string {
	tree := r.ensemble.Tree()
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
	return id != "" && strings.Contains(r.ensemble.Tree(), "    "+strings.TrimPrefix(id, node+"/")+" ")
}

// unneededWatch returns a watch that no active candidate needs, or "". Each candidate watches its
// znode and that of its predecessor. A follower that leaves does not remove its watch on the
// predecessor until the predecessor leaves: one for each connection, as the server counts them.
func (r *scheduleRun) unneededWatch() string {
	type watch struct {
		session int64
		path    string
	}
	own, active := map[watch]bool{}, map[string]bool{}
	for _, m := range r.active() {
		own[watch{m.conn.SessionID(), m.id()}], active[m.id()] = true, true
	}
	for _, x := range r.ensemble.Server(0).Watches() {
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

// mayRemain reports whether a watch that is not needed may exist: when a session expires, the
// client library sends queued requests, also those with watches, in the next session.
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
