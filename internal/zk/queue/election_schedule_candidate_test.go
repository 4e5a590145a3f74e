package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// sharedConn is a connection that one or several candidates use.
type sharedConn struct {
	*zk.Conn
	name   string
	closed bool
}

// member is one candidate of a schedule.
type member struct {
	name string
	conn *sharedConn

	mu       sync.Mutex
	election *leaderelection.Election
	session  int64    // session in which the candidacy has begun
	watched  []string // paths that the candidate has watched: its own znodes and the znodes of its predecessors
	newest   leaderelection.Status
	over     bool
	resigned bool
}

func (m *member) id() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.election == nil {
		return ""
	}
	return m.election.ID()
}

func (m *member) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// setOver records that the candidacy is over, and returns the newest status.
func (m *member) setOver() leaderelection.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	return m.newest
}

// expectRemovals records that the znodes of all candidates of a connection will be removed, because the connection
// loses its session.
func (r *scheduleRun) expectRemovals(conn *sharedConn) {
	for _, m := range r.members {
		if m.conn == conn {
			r.history.expectRemoval(m.id())
		}
	}
}

// choose returns the active candidate that n selects, or nil if there is none.
func (r *scheduleRun) choose(n int) *member {
	active := r.active()
	if len(active) == 0 {
		return nil
	}
	return active[n%len(active)]
}

// active returns the candidates that have not resigned and whose candidacy is not over.
func (r *scheduleRun) active() (active []*member) {
	for _, m := range r.members {
		m.mu.Lock()
		if !m.over && !m.resigned {
			active = append(active, m)
		}
		m.mu.Unlock()
	}
	return active
}

// connection returns a connection for a new candidate. n selects the server, or the connection that the candidate
// shares with others.
func (r *scheduleRun) connection(n int) *sharedConn {
	if r.shared {
		open := slices.DeleteFunc(slices.Clone(r.conns), func(c *sharedConn) bool { return c.closed })
		if len(open) >= 2 {
			return open[n%len(open)]
		}
	}
	// Use a small receive buffer, because each connection fills its buffer with zeros, and the default is 1.5 MB.
	conn, _, err := r.Ensemble.ConnectFrom(n%r.Servers, r.Timeout, zk.WithMaxBufferSize(64<<10))
	if err != nil {
		r.Violate("cannot connect: %v", err)
	}
	if r.reported != r.Timeout {
		connection.RecordOf(conn).Push(connection.Event{Timeout: r.reported})
	}
	c := &sharedConn{Conn: conn, name: fmt.Sprintf("connection %d", len(r.conns))}
	r.conns = append(r.conns, c)
	return c
}

func (r *scheduleRun) join(n int) {
	if len(r.active()) >= r.candidates {
		return
	}
	m := &member{name: fmt.Sprintf("c%d", len(r.members)), conn: r.connection(n)}
	r.members = append(r.members, m)
	r.Note("%s: joins over %s", m.name, m.conn.name)
	r.running.Go(func() { r.runCandidate(m) })
}

func (r *scheduleRun) electionOptions(m *member) []leaderelection.Option {
	options := []leaderelection.Option{leaderelection.WithName(m.name), leaderelection.WithSessionTimeout(r.reported)}
	if r.rejoin {
		options = append(options, leaderelection.WithRejoin())
	}
	if r.create {
		options = append(options, leaderelection.WithCreateNode())
	}
	if r.prefix {
		options = append(options, leaderelection.WithNamePrefix("n_"))
	}
	return options
}

// runCandidate runs one candidate until its candidacy is over, and verifies what it reports.
func (r *scheduleRun) runCandidate(m *member) {
	e, err := leaderelection.NewElection(m.conn.Conn, node, r.electionOptions(m)...)
	if err != nil {
		m.setOver()
		r.Note("%s: cannot join: %v", m.name, err)
		if !errors.Is(err, leaderelection.ErrUnreachable) && !errors.Is(err, leaderelection.ErrConnClosed) && !errors.Is(err, leaderelection.ErrNoElection) {
			r.Violate("%s: NewElection: %v", m.name, err)
		}
		return
	}
	m.mu.Lock()
	m.election, m.session = e, m.conn.SessionID()
	resigned := m.resigned
	m.mu.Unlock()
	if resigned {
		_ = e.Resign()
	}
	events := e.Events()
	r.running.Go(func() { (&eventVerifier{run: r, member: m}).receive(events) })
	returned := make(chan error, 1)
	go func() { returned <- e.ElectLeader() }()
	count := 0
	for s := range e.Status() {
		count++
		r.receiveStatus(m, s)
		if r.lazy && count%2 == 0 {
			time.Sleep(r.Timeout / 5)
		}
	}
	err = <-returned
	final := m.setOver()
	r.Note("%s: the candidacy is over: %v", m.name, err)
	if !errors.Is(final.Err, err) || (err == nil) != (final.Err == nil) {
		r.Violate("%s: ElectLeader returned %v after the final status %v", m.name, err, final)
	}
	r.verifyReason(m, err)
}

// receiveStatus verifies and records a status. If the candidate is the leader, receiveStatus starts the work of the
// leader.
func (r *scheduleRun) receiveStatus(m *member, s leaderelection.Status) {
	r.Note("%s: %v", m.name, s)
	m.mu.Lock()
	if m.newest.Err != nil {
		r.Violate("%s: status %v follows the final status", m.name, s)
	}
	m.newest = s
	m.watched = append(m.watched, s.CandidateID, s.NowFollowing)
	m.mu.Unlock()
	if (s.Role == leaderelection.Leader) != (s.Leadership != nil) {
		r.Violate("%s: role and leadership differ: %v", m.name, s)
	}
	if s.Leadership == nil {
		return
	}
	l := r.history.beginLeadership(m.name, s.CandidateID, s.Leadership)
	r.running.Add(1)
	context.AfterFunc(s.Leadership.Context(), func() {
		r.history.endLeadership(l)
		r.Note("%s: done: %v", m.name, s.Leadership.Err())
		r.running.Done()
	})
	r.running.Go(func() { r.work(s.Leadership) })
}

// work writes a znode by guarded transactions: at the beginning of the leadership, and at a time at which the
// candidate may have lost the leadership.
func (r *scheduleRun) work(l *leaderelection.Leadership) {
	for range 2 {
		written, err := l.Multi(&zk.SetDataRequest{Path: register, Data: strconv.AppendInt(nil, l.Token(), 10), Version: -1})
		if err == nil {
			r.history.addWrite(l.Token(), written[0].Stat.Mzxid)
		}
		time.Sleep(r.Timeout * 3 / 4)
	}
}

// verifyReason verifies that a step of the schedule explains why the candidacy is over.
func (r *scheduleRun) verifyReason(m *member, err error) {
	m.mu.Lock()
	resigned := m.resigned
	m.mu.Unlock()
	valid := false
	switch {
	case err == nil:
		valid = resigned
	case errors.Is(err, leaderelection.ErrElectionOver):
		valid = r.ended
	case errors.Is(err, leaderelection.ErrNoElection):
		valid = r.ended || r.rebuilt && !r.create // the servers have lost their data after NewElection has returned
	case errors.Is(err, leaderelection.ErrDeleted):
		// If no server answers for a session timeout, a candidate that does not rejoin ends without knowing why its
		// znode was deleted.
		valid = r.history.isRemovalExpected(m.id()) || !r.rejoin && !r.hasZnode(m.id())
	case errors.Is(err, leaderelection.ErrSessionExpired):
		valid = !r.rejoin
	case errors.Is(err, leaderelection.ErrConnClosed):
		valid = m.conn.closed
	case errors.Is(err, leaderelection.ErrUnreachable):
		valid = !r.rejoin
	}
	if !valid {
		r.Violate("%s: the candidacy is over without a reason: %v", m.name, err)
	}
}

func (r *scheduleRun) resign(m *member) {
	r.Note("%s: resigns", m.name)
	m.mu.Lock()
	m.resigned = true
	e := m.election
	m.mu.Unlock()
	if e == nil {
		return // runCandidate resigns after NewElection has returned
	}
	r.running.Go(func() {
		start := time.Now()
		err := e.Resign()
		r.Note("%s: has resigned: %v", m.name, err)
		if d := time.Since(start); d > resignLimit {
			r.Violate("%s: Resign took %v", m.name, d)
		}
		if err != nil && !errors.Is(err, leaderelection.ErrUnconfirmed) {
			r.Violate("%s: Resign: %v", m.name, err)
		}
		if err == nil && r.hasZnode(e.ID()) {
			r.Violate("%s: Resign is confirmed, but %s exists", m.name, e.ID())
		}
	})
}
