// Package session monitors the session of a *zk.Conn. All elections and locks that use a
// connection share one monitor.
//
// The client library reports the loss of a session only to the caller of zk.Connect, and it
// cannot report that a server which still answers is partitioned from its ensemble. Therefore
// the monitor polls the state of the connection and, while a subscription requires a lease,
// sends checks to the ensemble: transactions that check the subscriptions' znodes and change
// nothing. File lease.go defines which lease follows from the acknowledged checks.
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
	// subscription uses it, so that a lock that is held briefly allocates none.
	idle *monitor
}

var slots = perconn.NewMap(func(*zk.Conn) *slot { return &slot{} })

// epochs is the last State.Epoch of all connections.
var epochs atomic.Uint64

// monitor contains the state of one connection. Its goroutine starts when the first poll or
// check is due, and ends with the last subscription. A lock that is held for a millisecond
// needs no goroutine.
type monitor struct {
	slot  *slot
	conn  *zk.Conn
	ctx   context.Context    // of the goroutine
	stop  context.CancelFunc // ends it
	timer *time.Timer        // starts the goroutine
	done  chan struct{}
	wake  chan struct{} // capacity 1; has an element after Prove

	mu        sync.Mutex
	subs      map[*Subscription]struct{}
	proving   map[string]*Subscription // those that require a lease, by path
	seen      connection
	epoch     uint64
	closed    bool
	lease     lease
	proven    bool
	lapses    uint64
	began     time.Time     // when the session was first seen
	short     int           // the number of consecutive sessions that ended shortly after they began
	downSince time.Time     // when the goroutine first saw the connection down; zero if it is up
	warned    bool          // a warning about downSince was logged
	stated    time.Duration // the shortest timeout of the subscriptions, 0 for none
	granted   time.Duration // the granted timeout, 0 if it is not known
	checkNow  bool          // send the next check before it is due
	lastCheck time.Time     // when the last check was sent

	logs []func() // log messages that the goroutine writes

	record *handshake.Record
	pauses *pauseMonitor

	checking bool // a check is outstanding; used only by the goroutine
}

// connection is the state of a zk.Conn.
type connection struct {
	session int64
	server  string
	up      bool
}

func readConnection(conn *zk.Conn) connection {
	c := connection{session: conn.SessionID(), up: conn.State() == zk.StateHasSession}
	if c.up {
		// While it is not connected, the client library holds the lock that Server needs
		// until the HostProvider has returned the next server, which may be a DNS lookup
		// that blocks.
		c.server = conn.Server()
	}
	return c
}

// start starts a monitor. The caller holds mu.
func (slot *slot) start(conn *zk.Conn, timeout time.Duration) *monitor {
	m := slot.idle
	slot.idle = nil
	created := m == nil
	if created {
		m = &monitor{
			slot: slot, done: make(chan struct{}), wake: make(chan struct{}, 1),
			subs: map[*Subscription]struct{}{}, proving: map[string]*Subscription{},
			record: handshake.Of(conn), pauses: pauseMonitors.Of(conn),
		}
		m.ctx, m.stop = context.WithCancel(context.Background())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conn, m.stated, m.granted = conn, timeout, 0
	m.epoch, m.seen, m.began, m.short = epochs.Add(1), readConnection(conn), time.Time{}, 0
	m.lease, m.proven, m.checkNow, m.lastCheck = lease{}, false, false, time.Time{}
	m.downSince, m.warned, m.logs = time.Time{}, false, nil
	if m.seen.up {
		m.granted = m.record.Granted(conn)
	}
	m.updateTimeout()
	slot.monitor = m
	if after := pollInterval(m.lease.timeout); created {
		m.timer = time.AfterFunc(after, m.run)
	} else {
		m.timer.Reset(after)
	}
	return m
}

// interval returns the shortest interval that CheckEvery has set for a subscription that
// requires a lease. The caller holds mu.
func (m *monitor) interval() time.Duration {
	shortest := m.lease.timeout
	for _, s := range m.proving {
		if shortest = min(shortest, s.every); shortest == 0 {
			break
		}
	}
	return shortest
}

// observe reads the state of the connection and records the changes. The caller holds mu.
func (m *monitor) observe() {
	before, now := m.seen, readConnection(m.conn)
	if now.up {
		m.updateGranted()
	}
	if now == before {
		return
	}
	m.seen = now
	if before.up {
		m.epoch = epochs.Add(1)
	}
	if now.session != before.session {
		m.lease.clear()
		m.updateTimeout()
		m.noteSession(before.session)
	}
	if now.up {
		m.checkNow = true
	}
	m.notifyAll()
}

// updateProven computes proven for the current time. The caller holds mu. It must be called
// before a proof is added as well: a user may have compared the deadline with the clock, so an
// expiration of the lease must be counted even if the proof renews the lease.
func (m *monitor) updateProven() {
	// The servers expire sessions by the granted timeout, so it limits pauses, too.
	m.lease.paused = m.pauses.last(choose(0, m.granted) / 8)
	now := time.Now() // read after mu was locked
	deadline := m.lease.deadline()
	before := m.proven
	switch {
	case deadline.IsZero() || Expired(deadline, now):
		m.proven = false
	case !m.proven:
		// If the lease ends before the next proof can arrive, proven would alternate.
		m.proven = !Expired(deadline.Add(-m.lease.timeout/4), now)
	}
	if m.proven == before {
		return
	}
	if before {
		m.lapses++
	}
	// A subscription whose znode a check has not found is notified as well, because the znode
	// may be moving.
	m.notifyAll()
}

func (m *monitor) notifyAll() {
	for s := range m.subs {
		s.notify()
	}
}

func (s *Subscription) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// run is the goroutine of the monitor.
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
		m.updateProven()
		m.warnOutage(now)
		if downFor++; m.seen.up {
			downFor = 0
		}
		if downFor > 1 && down == nil {
			down = m.detectClose()
		}
		if possible := !m.checking && m.seen.up && len(m.proving) > 0; possible && (m.checkNow || m.lease.due(m.lastCheck, now, m.interval())) {
			results = m.check(now)
		}
		next := pollInterval(m.lease.timeout)
		if m.proven {
			next = min(next, max(m.lease.deadline().Sub(now), time.Millisecond))
		}
		logs := m.logs
		m.logs = nil
		m.mu.Unlock()
		for _, log := range logs {
			log()
		}
		timer.Reset(next)
	}
}

// detectClose sends a request that fails with zk.ErrClosing as soon as the owner closes the
// connection. While the connection is up, its state shows this.
func (m *monitor) detectClose() <-chan request.Answer[struct{}] {
	return request.Start(func() (struct{}, error) {
		_, _, err := m.conn.Exists("/")
		return struct{}{}, err
	})
}

// end notifies all subscriptions that the connection was closed, and blocks until the last one
// is closed.
func (m *monitor) end(ctx context.Context) {
	m.mu.Lock()
	m.observe()
	m.closed = true
	m.lease.clear()
	m.updateProven()
	m.notifyAll()
	m.mu.Unlock()
	<-ctx.Done()
}

// apply updates the state by the result of a check. It returns an error if the check is not a
// proof.
func (m *monitor) apply(r checked, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe()
	if m.seen.session != r.session {
		return zkerror.ErrSessionExpired // it may be a proof for the earlier session
	}
	for _, path := range r.missing {
		if s := m.proving[path]; s != nil {
			s.missing = true
			delete(m.proving, path)
			s.notify()
		}
	}
	if err == nil {
		m.updateProven()
		m.lease.add(r.sent, r.acked)
		m.updateProven()
	}
	return err
}
