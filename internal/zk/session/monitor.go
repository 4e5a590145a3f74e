// Package session watches the session of a *zk.Conn for everybody who stands
// on it: one monitor a connection, however many elections and locks use it.
//
// The client library tells only whoever called zk.Connect when a session is
// lost, and never tells that a server which still answers has been cut off
// from its ensemble. So the monitor looks at the connection's state at short
// intervals, and, while somebody needs proof, writes to the ensemble: a
// transaction that checks the znodes in question and changes nothing. What
// follows from an acknowledged check is in lease.go.
package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
	"github.com/go-leaderelection/leaderelection/internal/zk/perconn"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// slot holds the monitor of one connection.
type slot struct {
	mu      sync.Mutex
	monitor *monitor // nil while there are no subscriptions
	// idle is a monitor without subscriptions whose goroutine was never started. The next
	// subscription uses it: a lock that is held for a moment needs no new one.
	idle *monitor
}

var slots = perconn.NewMap(func(*zk.Conn) *slot { return &slot{} })

// epochs is the last State.Epoch of all connections.
var epochs atomic.Uint64

// monitor owns what is known about one connection. Its goroutine runs while
// there are subscriptions, from the first time on that it has something to do:
// a lock that is held for a millisecond needs none.
type monitor struct {
	slot  *slot
	conn  *zk.Conn
	ctx   context.Context    // of the goroutine
	stop  context.CancelFunc // ends it
	start *time.Timer        // runs the goroutine
	done  chan struct{}
	wake  chan struct{} // capacity 1: something to prove has come

	mu        sync.Mutex
	subs      map[*Subscription]struct{}
	proving   map[string]*Subscription // by path
	seen      connection
	epoch     uint64
	closed    bool
	lease     lease
	proven    bool
	lapses    uint64
	began     time.Time     // when the session was first seen
	short     int           // sessions in succession that ended right after they had begun
	downSince time.Time     // since when the connection is, as the goroutine has seen; zero if it is not
	warned    bool          // of that
	stated    time.Duration // the shortest of the subscriptions', 0 for none
	granted   time.Duration // 0 while it is not known
	// checkNow: do not wait for the next check's time.
	checkNow  bool
	lastCheck time.Time

	reports []func() // to be logged by the goroutine

	record     *handshake.Record
	attendance *attendance

	checking bool // only the goroutine uses it
}

// connection is what can be read off a zk.Conn at any time.
type connection struct {
	session int64
	server  string
	up      bool
}

func look(conn *zk.Conn) connection {
	is := connection{session: conn.SessionID(), up: conn.State() == zk.StateHasSession}
	if is.up {
		// Not otherwise: while there is no connection the client holds the
		// lock that Server takes for as long as a HostProvider takes to name
		// the next, which may be a lookup that hangs.
		is.server = conn.Server()
	}
	return is
}

// begin starts a monitor. The caller holds mu.
func (slot *slot) begin(conn *zk.Conn, timeout time.Duration) *monitor {
	m := slot.idle
	slot.idle = nil
	start := m == nil
	if start {
		m = &monitor{
			slot: slot, done: make(chan struct{}), wake: make(chan struct{}, 1),
			subs: map[*Subscription]struct{}{}, proving: map[string]*Subscription{},
			record: handshake.Of(conn), attendance: attendances.Of(conn),
		}
		m.ctx, m.stop = context.WithCancel(context.Background())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conn, m.stated, m.granted = conn, timeout, 0
	m.epoch, m.seen, m.began, m.short = epochs.Add(1), look(conn), time.Time{}, 0
	m.lease, m.proven, m.checkNow, m.lastCheck = lease{}, false, false, time.Time{}
	m.downSince, m.warned, m.reports = time.Time{}, false, nil
	if m.seen.up {
		m.granted = m.record.Granted(conn)
	}
	m.adopt()
	slot.monitor = m
	if after := turn(m.lease.timeout); start {
		m.start = time.AfterFunc(after, m.run)
	} else {
		m.start.Reset(after)
	}
	return m
}

// interval is the shortest that CheckEvery has set of those with something to prove. The
// caller holds mu.
func (m *monitor) interval() time.Duration {
	shortest := m.lease.timeout
	for _, s := range m.proving {
		if shortest = min(shortest, s.every); shortest == 0 {
			break
		}
	}
	return shortest
}

// observe notes what has become of the connection. The caller holds mu.
func (m *monitor) observe() {
	was, is := m.seen, look(m.conn)
	if is.up {
		m.learn()
	}
	if is == was {
		return
	}
	m.seen = is
	if was.up && is != was {
		m.epoch = epochs.Add(1)
	}
	if is.session != was.session {
		m.lease.clear()
		m.adopt()
		m.replaced(was.session)
	}
	if is.up {
		m.checkNow = true
	}
	m.tellAll()
}

// judge brings proven up to date. The caller holds mu, and calls it before it
// adds a proof too: a lapse that somebody may have seen by the clock must not be
// mended unnoticed.
func (m *monitor) judge() {
	// A stop counts by what the servers count by.
	m.lease.paused = m.attendance.stopped(choose(0, m.granted) / 8)
	now := time.Now() // not before mu is held
	deadline := m.lease.deadline()
	was := m.proven
	switch {
	case deadline.IsZero() || Expired(deadline, now):
		m.proven = false
	case !m.proven:
		// A proof that lapses before the next can come would only flap.
		m.proven = !Expired(deadline.Add(-m.lease.timeout/4), now)
	}
	if m.proven == was {
		return
	}
	if was {
		m.lapses++
	}
	// Also those whose path a check has missed: it may be about to move.
	m.tellAll()
}

func (m *monitor) tellAll() {
	for s := range m.subs {
		s.tell()
	}
}

func (s *Subscription) tell() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (m *monitor) run() {
	defer close(m.done)
	ctx := m.ctx
	var results <-chan request.Answer[checked]
	var down <-chan request.Answer[struct{}]
	downFor := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.wake:
		case r := <-results:
			m.checking = false
			r.Value.report(m.apply(r.Value, r.Err))
		case a := <-down:
			down = nil
			if request.Closed(ctx, m.conn, a.Err) {
				m.end(ctx)
				return
			}
		}
		m.mu.Lock()
		now := time.Now()
		m.observe()
		m.judge()
		m.lasting(now)
		if downFor++; m.seen.up {
			downFor = 0
		}
		if downFor > 1 && down == nil {
			down = m.down()
		}
		if able := !m.checking && m.seen.up && len(m.proving) > 0; able && (m.checkNow || m.lease.due(m.lastCheck, now, m.interval())) {
			results = m.check(now)
		}
		next := turn(m.lease.timeout)
		if m.proven {
			next = min(next, max(m.lease.deadline().Sub(now), time.Millisecond))
		}
		reports := m.reports
		m.reports = nil
		m.mu.Unlock()
		for _, report := range reports {
			report()
		}
		timer.Reset(next)
	}
}

// down starts the request that tells of the owner's Close: one that is under
// way while the connection is closed returns at once. One at a time, and none
// while the connection is up, because then its state tells.
func (m *monitor) down() <-chan request.Answer[struct{}] {
	return request.Start(func() (struct{}, error) {
		_, _, err := m.conn.Exists("/")
		return struct{}{}, err
	})
}

// end tells everybody that the connection was closed and waits until the last
// one has left.
func (m *monitor) end(ctx context.Context) {
	m.mu.Lock()
	m.observe()
	m.closed = true
	m.lease.clear()
	m.judge()
	m.tellAll()
	m.mu.Unlock()
	<-ctx.Done()
}

// apply draws the conclusions from a check, and returns why it proves nothing.
func (m *monitor) apply(r checked, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe()
	if m.seen.session != r.session {
		return zkerror.ErrSessionExpired // whatever it proves, it is not this session's life
	}
	for _, path := range r.missing {
		if s := m.proving[path]; s != nil {
			s.missing = true
			delete(m.proving, path)
			s.tell()
		}
	}
	if err == nil {
		m.judge()
		m.lease.proved(r.sent, r.acked)
		m.judge()
	}
	return err
}
