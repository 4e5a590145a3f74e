package electiontest

import (
	"errors"
	"sync"

	"github.com/go-leaderelection/leaderelection"
)

// beforeTheStart: a candidate that does not take part yet can be resigned.
func beforeTheStart(s *suite) {
	c := s.make(0)
	early := c.ID() // empty, unless it is chosen in advance
	if statuses := c.Status(); statuses != c.Status() {
		s.Errorf("Status returns another channel each time")
	}
	if current := c.Current(); current.Role != leaderelection.Follower || current.Err != nil {
		s.Errorf("Current is %v before the candidate takes part", current)
	}
	if id := c.ID(); id != early {
		s.Errorf("ID is %q, and then %q, before the candidate takes part", early, id)
	}
	for range 2 {
		var err error
		if !s.within(resignLimit, func() { err = c.Resign() }) {
			s.Fatalf("Resign of a candidate that has not started has not returned")
		}
		if err != nil {
			s.Errorf("Resign of a candidate that has not started: %v", err)
		}
	}
	s.expectClosed(c)
	s.expectRefused(c, leaderelection.ErrCandidacyOver)
	s.join(0)
	s.leader()
}

// expectClosed reads the channel of a candidacy that is over by Resign.
func (s *suite) expectClosed(c leaderelection.Candidate) {
	s.Helper()
	var status leaderelection.Status
	var ok bool
	switch {
	case !s.within(resignLimit, func() {
		select {
		case status, ok = <-c.Status():
		case <-s.over:
		}
	}):
		s.Errorf("after Resign the channel is not closed")
	case ok:
		s.Errorf("after Resign there is still a status: %v", status)
	}
}

// expectRefused has a candidate start that must not.
func (s *suite) expectRefused(c leaderelection.Candidate, want error) {
	s.Helper()
	var err error
	if !s.within(resignLimit, func() { err = c.ElectLeader() }) {
		s.Errorf("ElectLeader has not returned, and must refuse with: %v", want)
	} else if !errors.Is(err, want) {
		s.Errorf("ElectLeader returns %v, not %v", err, want)
	}
}

// startsOnce: a candidate takes part once.
func startsOnce(s *suite) {
	c := s.make(0)
	early := c.ID()
	m := s.enlist(0, c)
	m.read()
	s.leader()
	if id := m.ID(); early != "" && id != early {
		s.Errorf("ID is %q before the candidate takes part, and %q afterwards", early, id)
	}
	s.expectRefused(m.Candidate, leaderelection.ErrAlreadyStarted)
	s.stays("it leads on", func() bool { return m.leads() })
	m.resign()
	s.expectRefused(m.Candidate, leaderelection.ErrCandidacyOver)
	again := s.join(0)
	s.await("the program's next candidate leads", func() bool { return again.leads() })
}

// resignsRepeatedly: Resign may be called at any time and any number of times.
func resignsRepeatedly(s *suite) {
	m, next := s.join(0), s.join(1)
	leader := s.leader()
	if leader != m {
		m, next = next, m
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(m.resign)
	}
	all.Wait()
	s.await("the other one leads", func() bool { return next.leads() })
	m.resign()
	s.stays("the other one leads on", func() bool { return next.leads() })
}

// lateReader: nobody waits for a reader. What was not read is replaced by what is newer,
// and withdrawn by Resign.
func lateReader(s *suite) {
	first := s.enlist(0, s.make(0))
	s.awaitRole("the first leads", first, leaderelection.Leader)
	second := s.enlist(1, s.make(1))
	third := s.join(2)
	if third.isLeader() {
		s.Fatalf("%v: it leads while another one does", third)
	}
	first.resign()
	s.expectClosed(first.Candidate)
	isLeader := func() bool { return second.Current().Role == leaderelection.Leader }
	if !s.poll(s.Patience, func() bool { return isLeader() || third.isLeader() }) {
		s.Fatalf("nobody leads after the first%s", s.situation())
	}
	if third.isLeader() { // no order is promised
		third.resign()
		s.awaitRole("the last one leads", second, leaderelection.Leader)
	}
	second.read()
	s.await("the late reader is told", func() bool { return second.told > 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if second.last.Role != leaderelection.Leader || second.told > 1 {
		s.Errorf("%s: a late reader is to get the newest status, and not those that it missed", second.text())
	}
}

func (m *member) isLeader() bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.leads()
}
