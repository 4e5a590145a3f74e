package electiontest

import (
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection"
)

// member is a candidate that takes part, and its reader.
type member struct {
	leaderelection.Candidate
	s       *suite
	program int
	elected chan struct{} // ElectLeader has returned
	err     error         // what it returned

	// Guarded by s.mu.
	told     int // how many statuses were read
	last     leaderelection.Status
	lead     *leaderelection.Leadership // the newest that was told
	final    bool                       // a status with Err was read
	closed   bool                       // the channel
	reading  bool
	resigned bool // Resign was called
	lost     bool // crashed, or cut off: what it does need not be confirmed
	left     bool // the suite is done with it
	observer observer
}

// enlist has c take part; nobody reads.
func (s *suite) enlist(i int, c leaderelection.Candidate) *member {
	m := &member{Candidate: c, s: s, program: i, elected: make(chan struct{})}
	m.observe()
	s.mu.Lock()
	s.members = append(s.members, m)
	s.mu.Unlock()
	go func() {
		defer close(m.elected)
		m.err = c.ElectLeader()
	}()
	return m
}

// read reads the statuses from now on.
func (m *member) read() {
	m.s.mu.Lock()
	m.reading = true
	m.s.mu.Unlock()
	m.s.readers.Go(func() {
		for {
			select {
			case status, ok := <-m.Status():
				m.receive(status, ok)
				if !ok {
					return
				}
			case <-m.s.over:
				return
			}
		}
	})
}

// leads reports whether the member was told of a leadership that lasts; s.mu is held.
func (m *member) leads() bool { return m.lead != nil && m.lead.Err() == nil }

// receive checks what was read.
func (m *member) receive(status leaderelection.Status, ok bool) {
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	if m.leads() && status.Leadership != m.lead {
		s.Errorf("%s: its leadership has not ended when the status %v is delivered (channel open: %v)", m.text(), status, ok)
	}
	if !ok {
		m.closed = true
		return
	}
	m.told++
	m.check(status)
	m.last = status
	if l := status.Leadership; l != nil && l != m.lead {
		m.checkToken(l)
		m.lead = l
	}
	m.final = m.final || status.Err != nil
	s.checkAlone()
}

// check compares a status with the contract.
func (m *member) check(status leaderelection.Status) {
	s := m.s
	if m.final {
		s.Errorf("%s: a status after the final status: %v", m.text(), status)
	}
	if m.resigned && !m.lost && status.Err != nil {
		s.Errorf("%s: a final status after Resign: %v", m.text(), status)
	}
	if (status.Role == leaderelection.Leader) != (status.Leadership != nil) {
		s.Errorf("%s: role and leadership do not match: %v", m.text(), status)
	}
	if status.Err != nil && status.Role == leaderelection.Leader {
		s.Errorf("%s: role Leader in a final status: %v", m.text(), status)
	}
	if status.Role != leaderelection.Leader {
		return
	}
	if status.CandidateID == "" || status.NowFollowing != "" {
		s.Errorf("%s: a leader must have an ID and an empty NowFollowing: %v", m.text(), status)
	}
	if m.last.Leadership != nil && status.Leadership != m.last.Leadership {
		s.Errorf("%s: a new leadership was delivered without the end of the previous one: %v", m.text(), status)
	}
}

// checkToken compares with the leaderships before. One that is over already may have come
// before them.
func (m *member) checkToken(l *leaderelection.Leadership) {
	s := m.s
	if l.Err() != nil {
		return
	}
	if s.holder != nil && (l.Token() < s.latest || l.Token() == s.latest && s.holder != m) {
		s.Errorf("%s: token %d follows token %d", m.text(), l.Token(), s.latest)
	}
	s.latest, s.holder = l.Token(), m
}

// resign has the member resign, and checks what is promised of that. It may be called on
// any goroutine.
func (m *member) resign() {
	s := m.s
	s.Helper()
	s.mu.Lock()
	m.resigned, m.left = true, true
	ended := m.final || m.closed
	s.mu.Unlock()
	var err error
	if !s.within(resignLimit, func() { err = m.Resign() }) {
		s.Errorf("%v: Resign has not returned within two seconds", m)
		return
	}
	s.mu.Lock()
	lost := m.lost
	s.mu.Unlock()
	if err != nil && (!lost || !errors.Is(err, leaderelection.ErrUnconfirmed)) {
		s.Errorf("%v: Resign: %v", m, err)
	}
	if !m.ended() {
		return
	}
	s.mu.Lock()
	early := m.told == 0 && errors.Is(m.err, leaderelection.ErrCandidacyOver) // before it began
	s.mu.Unlock()
	if !ended && !lost && m.err != nil && !early {
		s.Errorf("%v: ElectLeader returns %v after Resign", m, m.err)
	}
}

// ended checks that the candidacy is over, or will be within moments. It returns false if
// that is not so.
func (m *member) ended() bool {
	s := m.s
	if !s.within(resignLimit, func() {
		select {
		case <-m.elected:
		case <-s.over:
		}
	}) {
		s.Errorf("%v: ElectLeader has not returned", m)
		return false
	}
	if m.reading && !s.reached(resignLimit, func() bool { return m.closed }) {
		s.Errorf("%v: the channel of statuses is not closed", m)
		return false
	}
	m.checkEvents()
	role := m.Current().Role
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.leads() {
		s.Errorf("%s: its leadership has not ended with the candidacy", m.text())
	}
	if role != leaderelection.Follower {
		s.Errorf("%s: role %v after the candidacy", m.text(), role)
	}
	return true
}

// leave is resign for those who have not yet.
func (m *member) leave() {
	m.s.mu.Lock()
	left := m.left
	m.s.mu.Unlock()
	if !left {
		m.resign()
	}
}

// isLost notes that the member's program was lost.
func (m *member) isLost() {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.lost = true
}

func (m *member) isClosed() bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.closed
}

// leadership is what the member was told last.
func (m *member) leadership() *leaderelection.Leadership {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.lead
}

// String is for messages.
func (m *member) String() string {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.text()
}

// text is String when s.mu is held.
func (m *member) text() string {
	lead := "no leadership"
	switch {
	case m.leads():
		lead = fmt.Sprintf("leads with token %d", m.lead.Token())
	case m.lead != nil:
		lead = fmt.Sprintf("led with token %d until: %v", m.lead.Token(), m.lead.Err())
	}
	return fmt.Sprintf("program %d: %d statuses, last %q, closed: %v, %s", m.program, m.told, m.last, m.closed, lead)
}
