package session

import (
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
)

// Subscription is one user's view of the connection. Its methods may be called
// from any goroutine; Close must be called once.
type Subscription struct {
	m       *monitor
	changed chan struct{}
	path    string // being proven, "" for none
	missing bool   // the check did not find path
	onCheck func(Check)
	every   time.Duration // see CheckEvery
	stated  time.Duration
	log     *slog.Logger // nil for none
}

// Subscribe starts to watch conn. timeout is the session timeout that the user
// states, 0 for the one that the servers grant; of several on one connection the
// smallest counts, and never more than was granted. It sends no request.
func Subscribe(conn *zk.Conn, timeout time.Duration) *Subscription {
	slot := slots.Of(conn)
	slot.mu.Lock()
	defer slot.mu.Unlock()
	m := slot.monitor
	if m == nil {
		m = slot.begin(conn, timeout)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if timeout > 0 && (m.stated == 0 || timeout < m.stated) {
		m.stated = timeout
		m.adopt()
	}
	s := &Subscription{m: m, changed: make(chan struct{}, 1), stated: timeout}
	m.subs[s] = struct{}{}
	return s
}

// Close ends the subscription; the last one of a connection ends its monitor
// and waits for it.
func (s *Subscription) Close() {
	m := s.m
	m.slot.mu.Lock()
	defer m.slot.mu.Unlock()
	m.mu.Lock()
	delete(m.subs, s)
	delete(m.proving, s.path)
	last := len(m.subs) == 0
	m.mu.Unlock()
	if !last {
		return
	}
	m.slot.monitor = nil
	if m.start.Stop() {
		// Its goroutine has not started. It must not keep the connection in memory.
		m.conn, m.slot.idle = nil, m
		return
	}
	m.stop()
	<-m.done
}

// Changed has an element whenever the State may have changed since it was last
// read. It is never closed.
func (s *Subscription) Changed() <-chan struct{} { return s.changed }

// State is what is known of a connection and of the path being proven on it.
type State struct {
	Session int64 // the connection's session, 0 while there is none
	Up      bool  // a server answers in that session
	Closed  bool  // the owner has closed the connection for good
	// Epoch grows whenever the connection was seen to break, and is not 0. It also
	// grows while there is no subscription on the connection: then breaks are not seen.
	Epoch   uint64
	Missing bool // the path to prove does not exist
	// Proven: the session lives for certain until Deadline. After a lapse it
	// becomes true only when the new proof is good for a while.
	Proven   bool
	Deadline time.Time
	// Lapses counts how often Proven has become false, so that a lapse that is
	// over already is not overlooked.
	Lapses uint64
}

// State reads the connection now; what it says of Up and Session is not older
// than the call.
func (s *Subscription) State() State {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe()
	m.judge()
	return State{
		Session: m.seen.session, Up: m.seen.up, Closed: m.closed, Epoch: m.epoch,
		Missing: s.missing, Proven: m.proven, Deadline: m.lease.deadline(), Lapses: m.lapses,
	}
}

// Deadline is the end of the session's lease: the zero time when nothing is
// proven.
func (s *Subscription) Deadline() time.Time {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.lease.deadline()
}

// Prove has the session's life proven by checks of path, an ephemeral znode of
// that session, from now on. sent is when an acknowledged write of the session
// was sent, as a first proof; one that is long past or zero proves nothing.
func (s *Subscription) Prove(path string, sent time.Time) {
	m := s.m
	m.mu.Lock()
	m.observe()
	alone := len(m.proving) == 0
	if alone {
		m.lease.clear()
		m.adopt()
	}
	m.judge()
	now := time.Now()
	age := elapsed(sent, now)
	if age < m.lease.timeout/3 {
		m.lease.proved(sent, now)
	}
	delete(m.proving, s.path)
	s.path, s.missing = path, false
	m.proving[path] = s
	m.judge()
	if alone && age < m.lease.timeout/8 && m.proven {
		// A check just now would prove no more: whoever holds a lock for a
		// millisecond needs none at all.
		m.checkNow, m.lastCheck = false, sent
	} else {
		m.checkNow = true
	}
	check := m.checkNow
	m.mu.Unlock()
	if check && m.start.Stop() {
		m.start.Reset(0)
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Move goes on with the checks that Prove began at another path, which has replaced
// the former one by an acknowledged write that was sent at that time. A check may
// have missed the former one meanwhile; the lease goes on all the same.
func (s *Subscription) Move(path string, sent time.Time) {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judge()
	m.lease.proved(sent, time.Now())
	delete(m.proving, s.path)
	s.path, s.missing = path, false
	m.proving[path] = s
	m.judge()
}

// CheckEvery makes the checks for this subscription wait for d after the last one was
// acknowledged, and at most for a quarter of the session timeout. Zero is the default, an
// eighth of it. Of several subscriptions that prove something, the shortest d counts.
func (s *Subscription) CheckEvery(d time.Duration) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.every = d
}

// Rest ends what Prove began.
func (s *Subscription) Rest() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	delete(s.m.proving, s.path)
	s.path = ""
}
