package connection

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

var monitors = NewMap(func(conn *zk.Conn) *monitor {
	m := &monitor{
		subs: map[*Subscription]struct{}{}, proving: map[string]*Subscription{}, wake: make(chan struct{}, 1),
		record: RecordOf(conn), pauses: pauseMonitors.Of(conn),
	}
	m.record.Observe(m.notice)
	return m
})

// epochs is the newest State.Epoch of all connections.
var epochs atomic.Uint64

// monitor contains the state of one connection. The goroutine of the monitor starts when the first poll or check is
// due, so that a lock that is held for a millisecond needs no goroutine, and ends with the last subscription.
type monitor struct {
	startStop sync.Mutex // held while the first subscription starts the monitor, or the last subscription stops it

	// ctx, stop, timer and done belong to the goroutine. If the last subscription is closed before the goroutine was
	// started, the next subscription uses these values again, so that a lock that is held briefly does not allocate
	// new ones.
	ctx   context.Context
	stop  context.CancelFunc // ends the goroutine
	timer *time.Timer        // starts the goroutine; nil if there is no such goroutine
	done  chan struct{}
	wake  chan struct{} // capacity 1; contains an element after Prove and after an event

	record *Record
	pauses *pauseMonitor

	mu      sync.Mutex
	subs    map[*Subscription]struct{}
	proving map[string]*Subscription // the subscriptions that require a lease, by the path of their znode
	monitored
	validities []validity // one element for each configured timeout of subscriptions
}

// monitored is the state of a monitor since it has had a subscription without interruption.
type monitored struct {
	conn      *zk.Conn // nil while there is no subscription, so that the monitor does not keep the connection in memory
	seen      Facts
	epoch     uint64
	closed    bool // the client library has ended the connection, or the owner of the connection ends the session
	lease     lease
	granted   time.Duration // the granted timeout, 0 if it is not known
	checkNow  bool          // send the next check before the check is due
	lastCheck time.Time     // when the last check was sent

	began     time.Time // when the monitor has first seen the session
	short     int       // the number of consecutive sessions that ended shortly after they began
	idle      time.Time // the value of Facts.Idle at the last call of hangs
	idleTicks int       // the number of calls of hangs since idle has changed
	downSince time.Time // when the goroutine has first seen that the connection is down; zero while the connection is up
	warned    bool      // warnOutage has logged a warning since downSince
	logs      []func()  // log messages that the goroutine writes
}

// validity is the state of the lease for the subscriptions with the same configured timeout. With a shorter timeout
// the lease ends earlier.
type validity struct {
	stated time.Duration
	subs   int // the number of subscriptions
	proven bool
	lapses uint64
}

// start starts the monitor for its first subscription, whose configured timeout is stated. The caller holds
// startStop.
func (m *monitor) start(conn *zk.Conn, stated time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record.Poll(conn)
	seen := m.record.Facts()
	m.monitored = monitored{conn: conn, epoch: epochs.Add(1), seen: seen, closed: seen.Closed}
	if seen.Up {
		m.granted = m.record.Granted(conn)
	}
	m.updateTimeout()
	if after := pollInterval(m.timeout(stated)); m.timer != nil {
		m.timer.Reset(after)
	} else {
		m.ctx, m.stop = context.WithCancel(context.Background())
		m.done = make(chan struct{})
		m.timer = time.AfterFunc(after, m.run)
	}
}

// validity returns the state of the lease for s. After Close, when a grant that ends may still read the state, the
// lease is not proven. The caller holds mu.
func (m *monitor) validity(s *Subscription) *validity {
	i := slices.IndexFunc(m.validities, func(v validity) bool { return v.stated == s.stated })
	if i < 0 {
		return &validity{}
	}
	return &m.validities[i]
}

// deadline returns the end of the lease for s. The caller holds mu.
func (m *monitor) deadline(s *Subscription) time.Time { return m.lease.until(m.timeout(s.stated)) }

// due reports whether a subscription that requires a lease needs a check. The caller holds mu.
func (m *monitor) due(now time.Time) bool {
	for _, s := range m.proving {
		last := m.lastCheck
		if limit.Elapsed(last, s.first) > 0 {
			last = s.first
		}
		if m.lease.due(m.timeout(s.stated), last, now, s.every) {
			return true
		}
	}
	return false
}

// untilNextRun returns the time after which the goroutine must run again. The caller holds mu.
func (m *monitor) untilNextRun(now time.Time) time.Duration {
	next := pollInterval(m.lease.timeout)
	for _, v := range m.validities {
		timeout := m.timeout(v.stated)
		next = min(next, pollInterval(timeout))
		if v.proven {
			next = min(next, max(m.lease.until(timeout).Sub(now), time.Millisecond))
		}
	}
	return next
}

// observe updates the state of the monitor by the events of the connection. The caller holds mu.
func (m *monitor) observe() {
	m.record.Poll(m.conn)
	before, now := m.seen, m.record.Facts()
	if now.Up {
		m.updateGranted()
	}
	m.seen = now
	if now.Session == before.Session && now.Up == before.Up && now.Breaks == before.Breaks {
		return
	}
	if now.Breaks != before.Breaks {
		m.epoch = epochs.Add(1)
	}
	if now.Session != before.Session {
		m.lease.clear()
		m.updateTimeout()
		m.noteSession(before.Session)
	}
	if now.Up {
		m.checkNow = true
	}
	m.notifyAll()
}

// notice is called with each event of the record. If the owner closes the connection, notice returns after all
// grants have ended, because the servers then delete the znodes of the session.
func (m *monitor) notice(e Event) {
	if e.Kind == Closing || e.Kind == Closed {
		m.close()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == nil {
		return // nothing must be updated without a subscription
	}
	m.observe()
	m.updateProven()
	Signal(m.wake) // wake the goroutine, if it has started
}

// close ends the grants of all subscriptions, and then their leases. Calls may overlap: each call ends all grants
// before it returns.
func (m *monitor) close() {
	m.mu.Lock()
	m.closed = true // set closed before the grants end, so that they do not end because of the deletion of their znodes
	conn := m.conn
	var ends []context.CancelCauseFunc
	for s := range m.subs {
		if s.end != nil {
			ends = append(ends, s.end)
		}
	}
	m.mu.Unlock()
	for _, end := range ends {
		end(Explain(conn, ErrConnClosed))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lease.clear()
	m.updateProven()
	m.notifyAll()
}

// updateProven computes for the current time whether the leases are proven. It must also be called before a proof
// is added: a user may have compared the deadline with the clock, so an expiry must be counted even if the proof
// renews the lease. The caller holds mu.
func (m *monitor) updateProven() {
	// The servers expire sessions by the granted timeout, so the granted timeout also limits pauses.
	m.lease.paused = m.pauses.lastPause(shorterTimeout(0, m.granted) / 8)
	now := time.Now() // read the clock after mu was locked, because locking can take time
	for i := range m.validities {
		v := &m.validities[i]
		timeout, before := m.timeout(v.stated), v.proven
		deadline := m.lease.until(timeout)
		switch {
		case deadline.IsZero() || limit.Expired(deadline, now):
			v.proven = false
		case !v.proven:
			// Require that a quarter of the timeout is left: if a lease ended before the next proof arrives, proven
			// would change with every proof.
			v.proven = !limit.Expired(deadline.Add(-timeout/4), now)
		}
		if before && !v.proven {
			v.lapses++
		}
		if v.proven != before {
			m.notifyProving(v.stated)
		}
	}
}

// notifyProving notifies the subscriptions with this timeout that have called Prove, including those whose znode a
// check has not found, because a rename may be in progress. Other subscriptions do not use the lease, and would be
// notified at each check if the checks are sent for subscriptions with a longer timeout, because the lease for a
// shorter timeout then ends before the next check. The caller holds mu.
func (m *monitor) notifyProving(stated time.Duration) {
	for s := range m.subs {
		if s.stated == stated && s.path != "" {
			s.notify()
		}
	}
}

func (m *monitor) notifyAll() {
	for s := range m.subs {
		s.notify()
	}
}

// run sends checks and polls the state of the connection until the monitor is closed.
func (m *monitor) run() {
	defer close(m.done)
	defer m.verify()()
	ctx := m.ctx
	var results <-chan Answer[checked]
	var down <-chan Answer[struct{}]
	downFor := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			ticked = true
		case <-m.wake:
		case r := <-results:
			results = nil
			r.Value.report(m.apply(r.Value, r.Err))
		case a := <-down:
			down = nil
			if errors.Is(a.Err, ErrConnClosed) {
				m.record.Push(Event{Kind: Closed})
			}
			m.mu.Lock()
			for s := range m.subs {
				s.reject(a.Err)
			}
			m.mu.Unlock()
		}
		m.mu.Lock()
		now := time.Now()
		m.observe()
		m.updateProven()
		if m.closed {
			m.mu.Unlock()
			<-ctx.Done()
			return
		}
		m.warnOutage(now)
		hangs := ticked && m.hangs(now)
		if downFor++; m.seen.Up {
			downFor = 0
		}
		if downFor > 1 && down == nil {
			down = m.detectClose(ctx)
		}
		if possible := results == nil && m.seen.Up && len(m.proving) > 0; possible && (m.checkNow || m.due(now)) {
			results = m.check(now)
		}
		next := m.untilNextRun(now)
		logs := m.logs
		m.logs = nil
		m.mu.Unlock()
		for _, log := range logs {
			log()
		}
		if hangs {
			m.record.Push(Event{Kind: Closed, Err: ErrHangs})
		}
		timer.Reset(next)
	}
}

// detectClose sends a request that fails with zk.ErrClosing as soon as the owner closes a connection that is down.
// The result is the error of Final for this request.
func (m *monitor) detectClose(ctx context.Context) <-chan Answer[struct{}] {
	conn := m.conn
	return Start(func() (struct{}, error) {
		_, _, err := conn.Exists("/")
		if errors.Is(err, zk.ErrNoAuth) { // the ACL of the root denies the request, so the connection is open
			err = nil
		}
		return struct{}{}, Final(ctx, conn, err)
	})
}

// apply updates the state by the result of a check. It returns an error if the result proves nothing.
func (m *monitor) apply(r checked, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe()
	if m.seen.Session != r.session {
		return ErrSessionExpired // the result may be a proof for the earlier session
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
	for _, s := range m.proving {
		s.reject(err)
	}
	return err
}

// Verify looks for lost watches of a connection until the context is done, and calls notify if it has found a lost
// watch. Package watch, which depends on this package, sets the variable.
var Verify func(ctx context.Context, conn *zk.Conn, notify func())

// verify runs Verify in a goroutine. The returned function waits until Verify has returned, which happens when the
// context of the monitor is done.
func (m *monitor) verify() (wait func()) {
	var running sync.WaitGroup
	if conn := m.conn; Verify != nil {
		running.Go(func() {
			Verify(m.ctx, conn, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.notifyAll()
			})
		})
	}
	return running.Wait
}

// checkBytes limits the total length of the paths in one check transaction, far below the
// megabyte that a server accepts.
const checkBytes = 256 << 10

// checked describes a check that a server has answered: when the client has sent the check, in which session, and
// which znodes the server has not found.
type checked struct {
	sent    time.Time
	acked   time.Time
	session int64
	missing []string
	proving map[string]*Subscription // the subscriptions for which the check was sent, by path
}

// check sends a check of the znodes of all subscriptions that require a lease. The caller holds mu.
func (m *monitor) check(now time.Time) <-chan Answer[checked] {
	proving := maps.Clone(m.proving)
	m.checkNow, m.lastCheck = false, now
	session, ctx, conn := m.seen.Session, m.ctx, m.conn
	return Start(func() (checked, error) {
		missing, err := findMissing(conn, slices.Collect(maps.Keys(proving)))
		err = Reject(ctx, conn, err)
		return checked{now, time.Now(), session, missing, proving}, err
	})
}

// findMissing checks that the znodes at paths exist, in one transaction if all exist, and returns the paths of missing
// znodes. A rejection for another reason, such as a missing permission, is no error, because a quorum of servers
// has decided on the rejection as well.
func findMissing(conn *zk.Conn, paths []string) (missing []string, err error) {
	for len(paths) > 0 {
		var ops []any
		for size := 0; len(ops) < len(paths) && size <= checkBytes; {
			path := paths[len(ops)]
			size += len(path)
			ops = append(ops, &zk.CheckVersionRequest{Path: path, Version: -1})
		}
		responses, err := conn.Multi(ops...)
		if err == nil {
			paths = paths[len(ops):]
			continue
		}
		// The responses of the operations before the failed operation contain no error; all later responses contain an
		// error.
		failed := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return r.Error != nil })
		if failed < 0 || Transient(err) {
			return missing, err
		}
		if errors.Is(responses[failed].Error, zk.ErrNoNode) {
			missing = append(missing, paths[failed])
		}
		paths = slices.Delete(slices.Clone(paths), failed, failed+1)
	}
	return missing, nil
}
