package connection

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Subscription is the access of one election or lock to the state of a connection. Its methods
// may be called from any goroutine. Close must be called once.
type Subscription struct {
	m       *monitor
	changed chan struct{}
	path    string // the znode of Prove, "" for none
	missing bool   // a check has not found path
	// rejected is the final answer of a server to a request of the monitor, or nil.
	rejected error
	onCheck  func(Check)
	first    time.Time               // when the write of Prove was sent
	every    time.Duration           // see CheckEvery
	stated   time.Duration           // the timeout of Subscribe
	log      *slog.Logger            // nil for none
	end      context.CancelCauseFunc // see EndOnClose; nil for none
}

// Subscribe starts to monitor conn. timeout is the session timeout that the user has configured,
// or 0 for the granted one. All subscriptions of the connection share the proofs of its lease. A
// timeout that is shorter than the granted one ends the lease earlier for this subscription only.
// Subscribe sends no request.
func Subscribe(conn *zk.Conn, timeout time.Duration) *Subscription {
	slot := slots.Of(conn)
	slot.mu.Lock()
	defer slot.mu.Unlock()
	m := slot.monitor
	if m == nil {
		m = slot.start(conn)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &Subscription{m: m, changed: make(chan struct{}, 1), stated: timeout}
	m.subs[s] = struct{}{}
	if !slices.ContainsFunc(m.validities, func(v validity) bool { return v.stated == timeout }) {
		m.validities = append(m.validities, validity{stated: timeout})
		m.updateTimeout()
		m.startEarlier(timeout)
	}
	m.validity(s).subs++
	return s
}

// Close ends the subscription. If it is the last one of the connection, Close ends the
// goroutine of the monitor and waits for it.
func (s *Subscription) Close() {
	m := s.m
	m.slot.mu.Lock()
	defer m.slot.mu.Unlock()
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
	m.slot.monitor = nil
	m.record.Observe(nil)
	if m.timer.Stop() {
		// The goroutine was not started. The idle monitor must not keep the connection in memory.
		m.mu.Lock()
		m.conn, m.slot.idle = nil, m
		m.mu.Unlock()
		return
	}
	m.stop()
	<-m.done
}

// reject records the error of a request if it is a final answer of a server. The caller holds the
// mutex of the monitor.
func (s *Subscription) reject(err error) {
	if zkerror.CodeOf(err) != nil && !Transient(err) {
		s.rejected = err
		s.notify()
	}
}

// EndOnClose makes the subscription call end, which ends the current grant of its user, with
// zkerror.ErrConnClosed before the owner of the connection ends the session. It calls end
// immediately if that has happened. A later call replaces the function. end may be called again, also
// while a call runs. It may be set after Close of the subscription. Only package zkdial detects
// Close in time: on other connections, end is called after the servers have deleted the znodes of
// the session.
func (s *Subscription) EndOnClose(end context.CancelCauseFunc) {
	s.m.mu.Lock()
	closed, conn := s.m.closed, s.m.conn // conn is nil if this was the last subscription and is closed
	s.end = end
	s.m.mu.Unlock()
	if closed {
		end(Explain(conn, zkerror.ErrConnClosed))
	}
}

// Changed returns a channel that receives an element if the State may have changed since the
// last element was received. It is never closed.
func (s *Subscription) Changed() <-chan struct{} { return s.changed }

// State is the state of a connection and of the lease of its session.
type State struct {
	Session int64 // the current session, 0 if there is none
	Up      bool  // a server answers in that session
	Closed  bool  // the owner has closed the connection
	// Epoch increases whenever the monitor sees the connection break, and is not 0. It also
	// increases if the connection was without a subscription, because nothing was monitored.
	Epoch   uint64
	Missing bool // a check has not found the znode of Prove
	// Rejected is a final answer of a server to a check, or to a request that it rejects because of
	// the connection. It remains, because the user of the subscription must end.
	Rejected error
	// Proven reports that the lease is valid: the ensemble does not expire the session before
	// Deadline. After the lease has ended, Proven becomes true again only if at least a quarter
	// of the timeout is left.
	Proven   bool
	Deadline time.Time
	// Lapses counts how often Proven has become false, so that users notice this even if it is
	// true again.
	Lapses uint64
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

// Prove starts to renew the lease of the session by checks of path, an ephemeral znode of that
// session. sent is the time at which an acknowledged write of the session was sent. It is the
// first proof, unless it is zero or older than a third of the timeout. If the session has a lease,
// because of earlier checks for any subscription, and a quarter of the timeout is left of it, that
// lease continues.
func (s *Subscription) Prove(path string, sent time.Time) {
	m := s.m
	m.mu.Lock()
	m.observe()
	now := time.Now()
	alone := len(m.proving) == 0
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
	// With a valid lease, the next regular check includes path. A lock that is held briefly needs
	// no check.
	s.first = sent
	m.checkNow = !m.validity(s).proven || m.checkNow && !alone
	check := m.checkNow
	m.mu.Unlock()
	if check && m.timer.Stop() {
		m.timer.Reset(0)
	}
	m.wakeUp()
}

// Move continues the checks of Prove with another znode. An acknowledged transaction, which was
// sent at the time sent, has replaced the previous znode by path. The lease continues, even if a
// check has not found the previous znode.
func (s *Subscription) Move(path string, sent time.Time) {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.updateProven()
	m.lease.add(sent, time.Now())
	delete(m.proving, s.path)
	s.path, s.missing = path, false
	m.proving[path] = s
	m.updateProven()
}

// CheckEvery sets the time from the acknowledgement of a check to the next check. At most a
// quarter of the session timeout is used. Zero is the default, an eighth of the timeout. Each
// check renews the lease of all subscriptions of the connection.
func (s *Subscription) CheckEvery(d time.Duration) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.every = d
}

// StopProving ends the checks that Prove has started.
func (s *Subscription) StopProving() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	delete(s.m.proving, s.path)
	s.path = ""
}
