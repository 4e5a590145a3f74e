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
		s.Errorf("Status returns a different channel for each call")
	}
	if current := c.Current(); current.Role != leaderelection.Follower || current.Err != nil {
		s.Errorf("Current is %v before the candidate has joined", current)
	}
	if id := c.ID(); id != early {
		s.Errorf("ID is %q, and then %q, before the candidate has joined", early, id)
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
		s.Errorf("ElectLeader has not returned, want error: %v", want)
	} else if !errors.Is(err, want) {
		s.Errorf("ElectLeader returns %v, want %v", err, want)
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
		s.Errorf("ID is %q before the candidate has joined, and %q afterwards", early, id)
	}
	s.expectRefused(m.Candidate, leaderelection.ErrAlreadyStarted)
	s.stays("it remains leader", func() bool { return m.leads() })
	m.resign()
	s.expectRefused(m.Candidate, leaderelection.ErrCandidacyOver)
	again := s.join(0)
	s.await("the next candidate of the program becomes leader", func() bool { return again.leads() })
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
	s.await("the other candidate becomes leader", func() bool { return next.leads() })
	m.resign()
	s.stays("the other candidate remains leader", func() bool { return next.leads() })
}

// lateReader: nobody waits for a reader. What was not read is replaced by what is newer,
// and withdrawn by Resign.
func lateReader(s *suite) {
	first := s.enlist(0, s.make(0))
	s.awaitRole("the first candidate becomes leader", first, leaderelection.Leader)
	second := s.enlist(1, s.make(1))
	third := s.join(2)
	if third.isLeader() {
		s.Fatalf("%v: is leader while another candidate is leader", third)
	}
	first.resign()
	s.expectClosed(first.Candidate)
	isLeader := func() bool { return second.Current().Role == leaderelection.Leader }
	if !s.poll(s.Patience, func() bool { return isLeader() || third.isLeader() }) {
		s.Fatalf("no candidate becomes leader after the first%s", s.situation())
	}
	if third.isLeader() { // no order is promised
		third.resign()
		s.awaitRole("the last candidate becomes leader", second, leaderelection.Leader)
	}
	second.read()
	s.await("the slow reader receives a status", func() bool { return second.told > 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if second.last.Role != leaderelection.Leader || second.told > 1 {
		s.Errorf("%s: a slow reader must receive the newest status, not those that it missed", second.text())
	}
}

func (m *member) isLeader() bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.leads()
}
