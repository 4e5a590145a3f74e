package leaderelection_test

import (
	"cmp"
	"context"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// candidate is a candidate whose statuses the test receives immediately.
type candidate struct {
	*leaderelection.Election
	h    *harness
	conn *zk.Conn

	changed chan struct{} // receives an element after each status; closed after the channel of statuses

	mu       sync.Mutex
	statuses []timedStatus
	closed   bool  // the status channel is closed
	returned bool  // reports that ElectLeader has returned
	err      error // the result of ElectLeader
}

// timedStatus is a status with the time at which it was received.
type timedStatus struct {
	leaderelection.Status
	at time.Time
}

// join starts a candidate on conn and waits until all goroutines are blocked.
func (h *harness) join(conn *zk.Conn, options ...leaderelection.Option) *candidate {
	h.Helper()
	c := h.joinAsync(conn, options...)
	h.advance(0)
	return c
}

// joinNamed starts a candidate with a client name on a new connection, and waits until it has joined.
func (h *harness) joinNamed(name string) *candidate {
	return h.join(h.connect(), leaderelection.WithName(name))
}

// joinAsync starts a candidate on conn.
func (h *harness) joinAsync(conn *zk.Conn, options ...leaderelection.Option) *candidate {
	h.Helper()
	c := h.newCandidate(node, conn, options...)
	c.start()
	return c
}

// newCandidate creates a candidate that is not started.
func (h *harness) newCandidate(node string, conn *zk.Conn, options ...leaderelection.Option) *candidate {
	h.Helper()
	options = append([]leaderelection.Option{leaderelection.WithSessionTimeout(timeout)}, slices.Concat(h.options, options)...)
	e, err := leaderelection.NewElection(conn, node, options...)
	require.NoError(h, err)
	c := &candidate{Election: e, h: h, conn: conn, changed: make(chan struct{}, 1)}
	h.candidates = append(h.candidates, c)
	return c
}

// start calls ElectLeader and receives statuses, in goroutines.
func (c *candidate) start() {
	go func() {
		err := c.ElectLeader()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err, c.returned = err, true
	}()
	go func() {
		for s := range c.Status() {
			c.mu.Lock()
			c.statuses = append(c.statuses, timedStatus{s, time.Now()})
			c.mu.Unlock()
			c.h.terms.add(s)
			select {
			case c.changed <- struct{}{}:
			default:
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closed = true
		close(c.changed)
	}()
}

// startAndAwaitStatus starts the candidate, waits for its first status, and returns it.
func (c *candidate) startAndAwaitStatus() leaderelection.Status {
	c.h.Helper()
	c.start()
	<-c.changed
	return c.newestStatus().Status
}

// awaitLeader waits until the candidate is the leader.
func (c *candidate) awaitLeader() {
	c.h.Helper()
	for c.Current().Role != leaderelection.Leader {
		_, open := <-c.changed
		require.True(c.h, open, "its candidacy is over")
	}
}

// firstCandidate returns the first candidate of the election.
func (h *harness) firstCandidate() leaderelection.CandidateInfo {
	h.Helper()
	all, err := leaderelection.Candidates(h.Context(), h.operator, node)
	require.NoError(h, err)
	require.NotEmpty(h, all)
	return all[0]
}

// namesOf returns the names of the znodes of candidates.
func namesOf(candidates ...*candidate) (names []string) {
	for _, c := range candidates {
		names = append(names, path.Base(c.ID()))
	}
	return names
}

// receivedStatuses returns the statuses that the candidate has received so far.
func (c *candidate) receivedStatuses() []timedStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.statuses)
}

// newestStatus returns the status that was received last.
func (c *candidate) newestStatus() timedStatus {
	c.h.Helper()
	all := c.receivedStatuses()
	require.NotEmpty(c.h, all, "no status was received")
	return all[len(all)-1]
}

// receivedRoles returns the roles of the received statuses.
func (c *candidate) receivedRoles() (roles []leaderelection.Role) {
	for _, s := range c.receivedStatuses() {
		roles = append(roles, s.Role)
	}
	return roles
}

// firstTimeOf returns when the first status with the given role was received.
func (c *candidate) firstTimeOf(role leaderelection.Role) time.Time {
	c.h.Helper()
	for _, s := range c.receivedStatuses() {
		if s.Role == role {
			return s.at
		}
	}
	require.Fail(c.h, "no such status", "%v", role)
	return time.Time{}
}

// multi executes a transaction by the present leadership of the candidate.
func (c *candidate) multi(ops ...any) ([]zk.MultiResponse, error) {
	l := c.Current().Leadership
	if l == nil {
		return nil, leaderelection.ErrNotLeader
	}
	return l.Multi(ops...)
}

// requireLeads requires that the candidate is the leader, and returns its leadership.
func (c *candidate) requireLeads() *leaderelection.Leadership {
	c.h.Helper()
	s := c.newestStatus()
	require.Equal(c.h, leaderelection.Leader, s.Role, "%v", s.Status)
	require.NoError(c.h, s.Leadership.Err())
	return s.Leadership
}

// requireFollows requires that other is the predecessor of the candidate.
func (c *candidate) requireFollows(other *candidate) {
	c.h.Helper()
	s := c.newestStatus()
	require.Equal(c.h, leaderelection.Follower, s.Role, "%v", s.Status)
	require.Equal(c.h, other.ID(), s.NowFollowing)
}

// requireNeverLed requires that the candidate has received no status with the role Leader.
func (c *candidate) requireNeverLed() {
	c.h.Helper()
	require.NotContains(c.h, c.receivedRoles(), leaderelection.Leader)
}

// requireOnlyCandidate requires that the election node has no other child than the
// candidate's znode, and that the znode belongs to the candidate's session.
func (c *candidate) requireOnlyCandidate() {
	c.h.Helper()
	c.h.requireIDs(c.ID())
	require.Equal(c.h, c.conn.SessionID(), c.h.stat(c.ID()).EphemeralOwner)
}

// requireOver requires that the candidacy is over and that the channel of statuses is closed. It returns the
// error that has ended the candidacy.
func (c *candidate) requireOver() error {
	c.h.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.True(c.h, c.closed, "the status channel is open")
	require.True(c.h, c.returned, "ElectLeader has not returned")
	if c.err != nil {
		require.ErrorIs(c.h, c.statuses[len(c.statuses)-1].Err, c.err)
	}
	return c.err
}

// resign calls Resign, and requires that ZooKeeper confirms the resignation.
func (c *candidate) resign() {
	c.h.Helper()
	require.NoError(c.h, c.Resign())
	c.h.advance(0)
	require.NoError(c.h, c.requireOver())
}

// leadershipRecord records the leaderships of all candidates of a test, so that verify can detect two leaders at
// the same time.
type leadershipRecord struct {
	mu      sync.Mutex
	all     []*term
	overlap bool // verify accepts leaderships that overlap
}

type term struct {
	id       string
	token    int64
	from, to time.Time // to is zero until Done is closed
}

// add records the leadership of a status.
func (t *leadershipRecord) add(s leaderelection.Status) {
	if s.Leadership == nil {
		return
	}
	x := &term{id: s.CandidateID, token: s.Leadership.Token(), from: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, x)
	context.AfterFunc(s.Leadership.Context(), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		x.to = time.Now()
	})
}

// verify requires that each election had at most one leader at any time, and that tokens have increased.
func (t *leadershipRecord) verify(h *harness) {
	h.Helper()
	h.advance(0)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.overlap {
		return
	}
	slices.SortStableFunc(t.all, func(a, b *term) int { return cmp.Compare(a.token, b.token) })
	for i, a := range t.all {
		for _, b := range t.all[i+1:] {
			otherCandidate := a.id != b.id && path.Dir(a.id) == path.Dir(b.id)
			overlap := a.to.IsZero() || a.to.After(b.from)
			require.False(h, otherCandidate && overlap, "%s was the leader until %v, %s from %v", a.id, a.to, b.id, b.from)
		}
	}
}

// moment is a point in time that a goroutine sets.
type moment struct {
	mu sync.Mutex
	at time.Time
}

// setNow sets m to the current time.
func (m *moment) setNow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = time.Now()
}

func (m *moment) time() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

// recordDoneTime returns a moment that is set when Done of the leadership is closed.
func recordDoneTime(l *leaderelection.Leadership) *moment {
	m := &moment{}
	context.AfterFunc(l.Context(), m.setNow)
	return m
}

// onStatus returns an option that calls f with each status before it is delivered, on the goroutine of
// ElectLeader. f also receives statuses that are retracted before a reader receives them. While f blocks, the
// candidate behaves as if its process were not scheduled.
func onStatus(f func(leaderelection.Status)) leaderelection.Option {
	return leaderelection.WithLogger(slog.New(statusHandler(f)))
}

// statusHandler is a slog.Handler that receives each status.
type statusHandler func(leaderelection.Status)

func (f statusHandler) Enabled(context.Context, slog.Level) bool { return true }
func (f statusHandler) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f statusHandler) WithGroup(string) slog.Handler            { return f }

func (f statusHandler) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if s, ok := a.Value.Any().(leaderelection.Status); ok {
			f(s)
		}
		return true
	})
	return nil
}
