package connection

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// Subscription is the access of one election or lock to the state of a connection. Its methods may be
// called from any goroutine. Close must be called once.
type Subscription struct {
	m       *monitor
	changed chan struct{}
	path    string // the znode that Prove has set, "" for none
	missing bool   // a check has not found the znode at path
	// rejected is the error with which a server has rejected a request of the monitor, or nil. Transient errors do
	// not count.
	rejected error
	onCheck  func(sent time.Time, err error)
	first    time.Time               // when the client has sent the write that Prove counts as the first proof
	every    time.Duration           // the value of Options.CheckInterval
	stated   time.Duration           // the value of Options.Timeout
	log      *slog.Logger            // the logger of warnings, or nil
	end      context.CancelCauseFunc // ends the grant when the owner closes the connection, or nil
}

// Subscribe calls the method Subscribe of Options that contain only a timeout.
func Subscribe(conn *zk.Conn, timeout time.Duration) *Subscription {
	return (&Options{Conn: conn, Timeout: timeout}).Subscribe()
}

// Subscribe starts to monitor the connection, and sends no request. All subscriptions of a connection share the
// proofs of the lease; a shorter timeout ends the lease earlier for this subscription only.
func (o *Options) Subscribe() *Subscription {
	m := monitors.Of(o.Conn)
	m.startStop.Lock()
	defer m.startStop.Unlock()
	if len(m.subs) == 0 {
		m.start(o.Conn, o.Timeout)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &Subscription{m: m, changed: make(chan struct{}, 1), stated: o.Timeout, every: o.CheckInterval, log: o.Log}
	m.subs[s] = struct{}{}
	if !slices.ContainsFunc(m.validities, func(v validity) bool { return v.stated == o.Timeout }) {
		m.validities = append(m.validities, validity{stated: o.Timeout})
		m.updateTimeout()
		if len(m.subs) > 1 && m.timer.Stop() {
			m.timer.Reset(0) // the first check may be due earlier than with the timeouts of the other subscriptions
		}
	}
	m.validity(s).subs++
	m.warn(s)
	return s
}

// Close ends the subscription. Close of the last subscription also ends the goroutine of the monitor, and waits for
// its end.
func (s *Subscription) Close() {
	m := s.m
	m.startStop.Lock()
	defer m.startStop.Unlock()
	m.mu.Lock()
	delete(m.subs, s)
	delete(m.proving, s.path)
	m.validity(s).subs--
	m.validities = slices.DeleteFunc(m.validities, func(v validity) bool { return v.subs == 0 })
	last := len(m.subs) == 0
	m.mu.Unlock()
	if !last {
		return
	}
	if !m.timer.Stop() { // the timer has started the goroutine
		m.stop()
		<-m.done
		m.timer = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conn = nil
}

// reject records err in s.rejected if it is an error code of a server and not a transient error. The caller holds the
// mutex of the monitor.
func (s *Subscription) reject(err error) {
	if CodeOf(err) != nil && !Transient(err) {
		s.rejected = err
		s.notify()
	}
}

// EndOnClose makes the subscription call end with ErrConnClosed before the owner of the connection ends the
// session, or immediately if the owner has done so. end must end the current grant. A later call replaces the
// function. end may be called more than once, also concurrently, and EndOnClose may be called after Close of the
// subscription. Without package zkdial, end is called after the servers have deleted the znodes of the session.
func (s *Subscription) EndOnClose(end context.CancelCauseFunc) {
	s.m.mu.Lock()
	closed, conn := s.m.closed, s.m.conn // conn is nil after Close of the last subscription
	s.end = end
	s.m.mu.Unlock()
	if closed {
		end(Explain(conn, ErrConnClosed))
	}
}

// Changed returns a channel that receives an element if the State may have changed since the last element was
// received. The channel is never closed.
func (s *Subscription) Changed() <-chan struct{} { return s.changed }

// State is the state of a connection and of the lease of its session.
type State struct {
	Session int64 // the current session, 0 if there is none
	Up      bool  // a server answers in the current session
	Closed  bool  // the owner has closed the connection
	// Epoch increases whenever the connection breaks. It also increases with the first subscription after a time
	// without subscriptions, because nothing notices a break in that time. Epoch is never 0.
	Epoch   uint64
	Missing bool // a check has not found the znode whose path was passed to Prove
	// Rejected is the error with which a server has rejected a check, or all requests of the connection; transient
	// errors do not count. It is nil if there is no such error, and does not become nil again.
	Rejected error
	// Proven means that the ensemble does not expire the session before Deadline. After the end of a lease, Proven
	// becomes true again only if at least a quarter of the timeout is left.
	Proven   bool
	Deadline time.Time
	// Lapses counts how often Proven has become false, so that users notice the change even if Proven is true
	// again.
	Lapses uint64
}

// DoubtDelay returns the time after which a reader reads a znode again, and sets its watch again, if the watch may
// never fire because it was set in an earlier Epoch. Readers that end earlier do not set the watch again, so many
// short reads cost nothing. reset means that the last read has set the watch again.
func DoubtDelay(reset bool) time.Duration {
	if reset {
		return 10 * time.Second
	}
	return 2 * time.Second
}

// State returns the current state. Up and Session are read from the connection during the call.
func (s *Subscription) State() State {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe()
	m.updateProven()
	v := m.validity(s)
	return State{
		Session: m.seen.Session, Up: m.seen.Up, Closed: m.closed, Epoch: m.epoch,
		Missing: s.missing, Rejected: s.rejected, Proven: v.proven, Deadline: m.deadline(s), Lapses: v.lapses,
	}
}

// Deadline returns the end of the lease, or the zero time without a lease.
func (s *Subscription) Deadline() time.Time {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.deadline(s)
}

// Prove starts to renew the lease of the session by checks of path, an ephemeral znode of that session, or
// continues with path if the znode at path has replaced the previous znode. sent is when the client has sent a
// write of the session that the server has acknowledged. This write is the first proof, unless sent is zero or
// longer ago than a third of the timeout. A lease of the session continues if at least a quarter of the timeout is
// left.
func (s *Subscription) Prove(path string, sent time.Time) {
	m := s.m
	m.mu.Lock()
	m.observe()
	now := time.Now()
	alone := len(m.proving) == 0 && s.path == "" // the path is set if a check has not found the previous znode
	if alone && limit.Expired(m.lease.deadline().Add(-m.lease.timeout/4), now) {
		m.lease.clear()
		m.updateTimeout()
	}
	m.updateProven()
	if limit.Elapsed(sent, now) < m.lease.timeout/3 {
		m.lease.add(sent, now)
	}
	delete(m.proving, s.path)
	s.path, s.missing = path, false
	m.proving[path] = s
	m.updateProven()
	// If the lease is valid, wait for the next regular check, which includes path: a lock that is held briefly then
	// needs no check.
	s.first = sent
	m.checkNow = !m.validity(s).proven || m.checkNow && !alone
	check := m.checkNow
	m.mu.Unlock()
	if check && m.timer.Stop() {
		m.timer.Reset(0)
	}
	Signal(m.wake) // wake the goroutine, if it has started
}

// StopProving ends the checks that Prove has started.
func (s *Subscription) StopProving() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	delete(s.m.proving, s.path)
	s.path = ""
}

// AssumedTimeout is the session timeout that is assumed if the granted timeout is not known: the shortest timeout
// that a server with default settings grants, two ticks of two seconds.
const AssumedTimeout = 4 * time.Second

// SessionTimeout returns the session timeout to use for conn: the granted timeout, or the configured timeout stated
// if that is shorter. If the granted timeout is not known, the result is stated, or AssumedTimeout if stated is 0.
func SessionTimeout(conn *zk.Conn, stated time.Duration) time.Duration {
	return shorterTimeout(stated, Granted(conn))
}

// shorterTimeout returns the shorter of the timeouts that are not 0, or AssumedTimeout if both are 0.
func shorterTimeout(stated, granted time.Duration) time.Duration {
	if stated > 0 && granted > 0 {
		return min(stated, granted)
	}
	return cmp.Or(stated, granted, AssumedTimeout)
}

// timeout returns the timeout of subscriptions whose configured timeout is stated. The caller holds mu.
func (m *monitor) timeout(stated time.Duration) time.Duration {
	return shorterTimeout(stated, m.lease.timeout)
}

// updateTimeout sets the timeout of the lease: the granted timeout, or, if that is not known, the longest
// configured timeout of a subscription, or else AssumedTimeout. For earlier proofs the servers used the earlier
// timeout, so a longer timeout does not apply to these proofs. The caller holds mu.
func (m *monitor) updateTimeout() {
	var stated time.Duration
	for _, v := range m.validities {
		stated = max(stated, v.stated)
	}
	timeout := cmp.Or(m.granted, stated, AssumedTimeout)
	if timeout < m.lease.timeout || len(m.lease.proofs) == 0 {
		m.lease.timeout = timeout
	}
}

// updateGranted reads the granted timeout of a connection that is up. The caller holds mu.
func (m *monitor) updateGranted() {
	granted := m.record.Granted(m.conn)
	if granted == 0 || granted == m.granted {
		return
	}
	m.granted = granted
	m.updateTimeout()
	for s := range m.subs {
		m.warn(s)
	}
}

// warn logs a warning if the granted timeout is shorter than the configured timeout of s. The caller holds mu.
func (m *monitor) warn(s *Subscription) {
	if m.granted != 0 && s.stated > m.granted {
		m.logLater(s, slog.LevelWarn, "WithSessionTimeout states more than the servers have granted: leases are shortened",
			"stated", s.stated, "granted", m.granted)
	}
}

// OnCheck sets a function that the goroutine of the monitor calls after each check of the subscription's znode:
// with a nil error if the check has renewed the lease. OnCheck must be called before Prove, and f must not block. f
// may be called during Close, and after Close if other subscriptions use the connection.
func (s *Subscription) OnCheck(f func(sent time.Time, err error)) { s.onCheck = f }

// report calls the functions of OnCheck after a check that has ended with err.
func (r *checked) report(err error) {
	for path, s := range r.proving {
		switch {
		case s.onCheck == nil:
		case slices.Contains(r.missing, path):
			s.onCheck(r.sent, ErrDeleted)
		default:
			s.onCheck(r.sent, err)
		}
	}
}

func (s *Subscription) notify() { Signal(s.changed) }

// Signal adds an element to a channel of capacity 1 unless the channel contains an element.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
