package electiontest

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// member is a candidate of the election, with the goroutine that reads its statuses.
type member struct {
	leaderelection.Candidate
	suite   *suite
	program int
	elected chan struct{} // closed when ElectLeader has returned
	err     error         // the error that ElectLeader has returned

	// The following fields are guarded by suite.mu.
	statuses  int // number of statuses that were read
	last      leaderelection.Status
	latest    *leaderelection.Leadership // the leadership of the last status that had one
	final     bool                       // whether a status with Err was read
	closed    bool                       // whether the channel of statuses is closed
	reading   bool
	resigned  bool // whether Resign was called
	lost      bool // the member was cut off, so the backend need not confirm its calls
	resigning bool // whether the suite has called resignAndCheck
	events    eventChecker
}

// startMember starts a candidate. Its statuses are not read until readStatuses is called.
func (s *suite) startMember(i int, c leaderelection.Candidate) *member {
	m := &member{Candidate: c, suite: s, program: i, elected: make(chan struct{})}
	m.readEvents()
	s.mu.Lock()
	s.members = append(s.members, m)
	s.mu.Unlock()
	go func() {
		defer close(m.elected)
		m.err = c.ElectLeader()
	}()
	return m
}

// readStatuses starts to read the statuses.
func (m *member) readStatuses() {
	m.suite.mu.Lock()
	m.reading = true
	m.suite.mu.Unlock()
	m.suite.readers.Go(func() {
		for {
			select {
			case status, ok := <-m.Status():
				m.receiveStatus(status, ok)
				if !ok {
					return
				}
			case <-m.suite.done:
				return
			}
		}
	})
}

// isLeaderLocked reports whether the latest leadership of the member still lasts. The caller holds suite.mu.
func (m *member) isLeaderLocked() bool { return m.latest != nil && !isDone(m.latest) }

// formerErr returns the FormerErr of the member's last status.
func (m *member) formerErr() error {
	m.suite.mu.Lock()
	defer m.suite.mu.Unlock()
	return m.last.FormerErr
}

// isDone reports whether Done of the leadership is closed. The suite must not call Err before that: Err
// closes Done after the deadline, so a candidate that never closes Done would seem correct.
func isDone(l *leaderelection.Leadership) bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}

// isExpired reports whether the deadline of the leadership passed longer ago than grace.
func isExpired(l *leaderelection.Leadership, grace time.Duration) bool {
	d := l.Deadline()
	return !d.IsZero() && time.Since(d) > grace
}

// receiveStatus checks a received status. ok is false if the channel is closed.
func (m *member) receiveStatus(status leaderelection.Status, ok bool) {
	s := m.suite
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.broadcastChange()
	if m.isLeaderLocked() && status.Leadership != m.latest {
		s.Errorf("%s: its leadership has not ended when the status %v is delivered (channel open: %v)", m.describe(), status, ok)
	}
	if !ok {
		m.closed = true
		return
	}
	m.statuses++
	m.checkStatus(status)
	m.last = status
	if l := status.Leadership; l != nil && l != m.latest {
		m.checkToken(l)
		m.latest = l
	}
	m.final = m.final || status.Err != nil
	s.checkSingleLeader()
}

// checkStatus checks that a status conforms to the contract.
func (m *member) checkStatus(status leaderelection.Status) {
	s := m.suite
	if m.final {
		s.Errorf("%s: a status after the final status: %v", m.describe(), status)
	}
	if m.resigned && !m.lost && status.Err != nil {
		s.Errorf("%s: a final status after Resign: %v", m.describe(), status)
	}
	if (status.Role == leaderelection.Leader) != (status.Leadership != nil) {
		s.Errorf("%s: role and leadership do not match: %v", m.describe(), status)
	}
	if status.Err != nil && status.Role == leaderelection.Leader {
		s.Errorf("%s: role Leader in a final status: %v", m.describe(), status)
	}
	if status.Next && (status.Role != leaderelection.Follower || status.Err != nil) {
		s.Errorf("%s: only a follower can be next: %v", m.describe(), status)
	}
	if err := status.FormerErr; err != nil && (status.Role != leaderelection.Leader ||
		!errors.Is(err, leaderelection.ErrResigned) && !errors.Is(err, leaderelection.ErrLeaseExpired)) {
		s.Errorf("%s: a status that cannot have the FormerErr %v: %v", m.describe(), err, status)
	}
	if status.Role != leaderelection.Leader {
		return
	}
	if status.CandidateID == "" || status.NowFollowing != "" {
		s.Errorf("%s: a leader must have an ID and an empty NowFollowing: %v", m.describe(), status)
	}
	if m.last.Leadership != nil && status.Leadership != m.last.Leadership {
		s.Errorf("%s: a new leadership was delivered without the end of the previous one: %v", m.describe(), status)
	}
}

// checkToken checks that the token of a leadership is greater than those of earlier leaderships. It ignores a
// leadership that is over, because later leaderships may have begun before its status was read.
func (m *member) checkToken(l *leaderelection.Leadership) {
	s := m.suite
	if isDone(l) || isExpired(l, 0) {
		return
	}
	if s.latestLeader != nil && (l.Token() < s.latestToken || l.Token() == s.latestToken && s.latestLeader != m) {
		s.Errorf("%s: token %d follows token %d", m.describe(), l.Token(), s.latestToken)
	}
	s.latestToken, s.latestLeader = l.Token(), m
}

// resignAndCheck calls Resign, and checks that the candidacy ends. It may be called from any
// goroutine.
func (m *member) resignAndCheck() {
	s := m.suite
	s.Helper()
	s.mu.Lock()
	m.resigned, m.resigning = true, true
	ended := m.final || m.closed
	s.mu.Unlock()
	var err error
	if !s.returnsWithin(resignLimit, func() { err = m.Resign() }) {
		s.Errorf("%v: Resign has not returned within two seconds", m)
		return
	}
	s.mu.Lock()
	lost := m.lost
	s.mu.Unlock()
	if err != nil && (!lost || !errors.Is(err, leaderelection.ErrUnconfirmed)) {
		s.Errorf("%v: Resign: %v", m, err)
	}
	if !m.checkEnded() {
		return
	}
	if !ended && !lost && m.err != nil {
		s.Errorf("%v: ElectLeader returns %v after Resign", m, m.err)
	}
}

// checkEnded checks that the candidacy ends in time. It returns false if it does not.
func (m *member) checkEnded() bool {
	s := m.suite
	if !s.returnsWithin(resignLimit, func() {
		select {
		case <-m.elected:
		case <-s.done:
		}
	}) {
		s.Errorf("%v: ElectLeader has not returned", m)
		return false
	}
	if m.reading && !s.waitUntil(resignLimit, func() bool { return m.closed }) {
		s.Errorf("%v: the channel of statuses is not closed", m)
		return false
	}
	m.checkEvents()
	role := m.Current().Role
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.isLeaderLocked() {
		s.Errorf("%s: its leadership has not ended with the candidacy", m.describe())
	}
	if role != leaderelection.Follower {
		s.Errorf("%s: role %v after the candidacy", m.describe(), role)
	}
	return true
}

// resignIfNecessary calls resignAndCheck unless it was called before.
func (m *member) resignIfNecessary() {
	m.suite.mu.Lock()
	left := m.resigning
	m.suite.mu.Unlock()
	if !left {
		m.resignAndCheck()
	}
}

// markLost records that the member's program is cut off.
func (m *member) markLost() {
	m.suite.mu.Lock()
	defer m.suite.mu.Unlock()
	m.lost = true
}

func (m *member) isClosed() bool {
	m.suite.mu.Lock()
	defer m.suite.mu.Unlock()
	return m.closed
}

// latestLeadership returns the leadership of the last status that had one.
func (m *member) latestLeadership() *leaderelection.Leadership {
	m.suite.mu.Lock()
	defer m.suite.mu.Unlock()
	return m.latest
}

// String describes the member for messages.
func (m *member) String() string {
	m.suite.mu.Lock()
	defer m.suite.mu.Unlock()
	return m.describe()
}

// describe implements String for callers that hold suite.mu.
func (m *member) describe() string {
	lead := "no leadership"
	switch {
	case m.isLeaderLocked():
		lead = fmt.Sprintf("leader with token %d", m.latest.Token())
	case m.latest != nil:
		lead = fmt.Sprintf("leader with token %d until: %v", m.latest.Token(), m.latest.Err())
	}
	return fmt.Sprintf("program %d: %d statuses, last %q, closed: %v, %s", m.program, m.statuses, m.last, m.closed, lead)
}
