package electiontest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

const (
	// resignLimit is longer than the contract's two seconds, because a machine may be busy.
	resignLimit = 10 * time.Second
	// step is how often a condition is looked at that nothing tells of.
	step = 10 * time.Millisecond
)

// suite plays one case.
type suite struct {
	TB
	*Group
	over    chan struct{} // nothing is read any more
	readers sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	members []*member
	made    []leaderelection.Candidate
	latest  int64 // the greatest token that was told while its leadership lasted,
	holder  *member
	alone   bool // two leaders were reported
}

func newSuite(t TB, g *Group) *suite {
	if g.Patience == 0 {
		g.Patience = 30 * time.Second
	}
	return &suite{TB: t, Group: g, over: make(chan struct{}), changed: make(chan struct{}), alone: true}
}

// close has everybody resign, and waits for the readers.
func (s *suite) close() {
	s.Helper()
	s.mu.Lock()
	members, made := s.members, s.made
	s.mu.Unlock()
	var leaving sync.WaitGroup
	for _, m := range members {
		leaving.Go(m.leave)
	}
	leaving.Wait()
	for _, c := range made { // those who were not to take part, and have
		s.within(resignLimit, func() { _ = c.Resign() })
	}
	close(s.over)
	s.readers.Wait()
}

// await waits until cond, which is called with mu held, and fails the test when that takes
// too long.
func (s *suite) await(what string, cond func() bool) {
	s.Helper()
	if !s.reached(s.Patience, cond) {
		s.Fatalf("%s: not within %v%s", what, s.Patience, s.situation())
	}
}

// reached reports whether cond, which is called with mu held, came true in time.
func (s *suite) reached(limit time.Duration, cond func() bool) bool {
	return s.poll(limit, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return cond()
	})
}

// signal wakes those that wait for a condition; mu is held.
func (s *suite) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// awaitRole waits for what the candidate says without being read.
func (s *suite) awaitRole(what string, c leaderelection.Candidate, role leaderelection.Role) {
	s.Helper()
	if !s.poll(s.Patience, func() bool { return c.Current().Role == role }) {
		s.Fatalf("%s: not within %v%s", what, s.Patience, s.situation())
	}
}

// poll reports whether cond came true in time.
func (s *suite) poll(limit time.Duration, cond func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		s.mu.Lock()
		s.checkAlone()
		changed := s.changed
		s.mu.Unlock()
		if cond() {
			return true
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-timer.C:
			return false
		}
	}
}

// stays fails the test if cond is false at any moment of a while.
func (s *suite) stays(what string, cond func() bool) {
	s.Helper()
	if s.reached(20*step, func() bool { return !cond() }) {
		s.Fatalf("%s: not long enough%s", what, s.situation())
	}
}

// within calls f, and reports whether it has returned in time.
func (s *suite) within(limit time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// leader waits until somebody leads, as far as the readers know.
func (s *suite) leader() (m *member) {
	s.Helper()
	s.await("a candidate becomes leader", func() bool {
		m = s.leading()
		return m != nil
	})
	return m
}

// leading is who leads; mu is held.
func (s *suite) leading() *member {
	for _, m := range s.members {
		if m.leads() {
			return m
		}
	}
	return nil
}

// checkAlone reports two leaderships that last at one time; mu is held. Both were told, so
// the later of them exists, and the earlier must have ended before.
func (s *suite) checkAlone() {
	var leaders []string
	for _, m := range s.members {
		if m.leads() {
			leaders = append(leaders, m.text())
		}
	}
	if len(leaders) > 1 && s.alone {
		s.alone = false // once is enough
		s.Errorf("more than one leader: %s", strings.Join(leaders, "; "))
	}
}

// situation is what is known of all, for messages.
func (s *suite) situation() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, m := range s.members {
		fmt.Fprintf(&b, "\n\t%s", m.text())
	}
	return b.String()
}

// make makes a candidate of program i that does not take part yet.
func (s *suite) make(i int) leaderelection.Candidate {
	s.Helper()
	c, err := s.New(i)
	if err != nil || c == nil {
		s.Fatalf("new candidate in program %d: %v", i, err)
	}
	s.mu.Lock()
	s.made = append(s.made, c)
	s.mu.Unlock()
	return c
}

// join has a candidate of program i take part, whose statuses are read at once, and waits
// for the first.
func (s *suite) join(i int) *member {
	s.Helper()
	m := s.enlist(i, s.make(i))
	m.read()
	s.await(fmt.Sprintf("first status of program %d", i), func() bool { return m.told > 0 || m.closed })
	if m.isClosed() {
		s.Fatalf("the candidacy ended immediately: %v", m)
	}
	return m
}

// joinAll has n programs take part, one after the other.
func (s *suite) joinAll(n int) (members []*member) {
	s.Helper()
	for i := range n {
		members = append(members, s.join(i))
	}
	return members
}
