package electiontest

import (
	"errors"
	"sync"

	"github.com/go-leaderelection/leaderelection"
)

// testResignBeforeStart requires that a candidate can resign before ElectLeader was called.
func testResignBeforeStart(s *suite) {
	c := s.newCandidate(0)
	early := c.ID() // empty, unless the implementation chooses the ID before ElectLeader is called
	if statuses := c.Status(); statuses != c.Status() {
		s.Errorf("Status returns a different channel for each call")
	}
	if current := c.Current(); current.Role != leaderelection.Follower || current.Err != nil {
		s.Errorf("Current returns %v before the candidate has joined", current)
	}
	if id := c.ID(); id != early {
		s.Errorf("ID returns %q, and then %q, before the candidate has joined", early, id)
	}
	for range 2 {
		var err error
		if !s.returnsWithin(resignLimit, func() { err = c.Resign() }) {
			s.Fatalf("Resign of a candidate that has not started has not returned")
		}
		if err != nil {
			s.Errorf("Resign of a candidate that has not started: %v", err)
		}
	}
	s.expectClosed(c)
	s.expectElectLeader(c, nil)
	s.expectElectLeader(c, leaderelection.ErrAlreadyStarted)
	s.joinMember(0)
	s.waitLeader()
}

// expectClosed requires that the channel of a candidate that has resigned is closed, without a status.
func (s *suite) expectClosed(c leaderelection.Candidate) {
	s.Helper()
	var status leaderelection.Status
	var ok bool
	switch {
	case !s.returnsWithin(resignLimit, func() {
		select {
		case status, ok = <-c.Status():
		case <-s.done:
		}
	}):
		s.Errorf("after Resign the channel is not closed")
	case ok:
		s.Errorf("after Resign there is still a status: %v", status)
	}
}

// expectElectLeader requires that ElectLeader returns the error want.
func (s *suite) expectElectLeader(c leaderelection.Candidate, want error) {
	s.Helper()
	var err error
	if !s.returnsWithin(resignLimit, func() { err = c.ElectLeader() }) {
		s.Errorf("ElectLeader has not returned, want error: %v", want)
	} else if !errors.Is(err, want) {
		s.Errorf("ElectLeader returns %v, want %v", err, want)
	}
}

// testStartsOnce requires that a second call of ElectLeader returns an error.
func testStartsOnce(s *suite) {
	c := s.newCandidate(0)
	early := c.ID()
	m := s.startMember(0, c)
	m.readStatuses()
	s.waitLeader()
	if id := m.ID(); early != "" && id != early {
		s.Errorf("ID returns %q before the candidate has joined, and %q afterwards", early, id)
	}
	s.expectElectLeader(m.Candidate, leaderelection.ErrAlreadyStarted)
	s.requireContinuously("it remains leader", func() bool { return m.isLeaderLocked() })
	m.resignAndCheck()
	s.expectElectLeader(m.Candidate, leaderelection.ErrAlreadyStarted)
	again := s.joinMember(0)
	s.requireEventually("the next candidate of the program becomes leader", func() bool { return again.isLeaderLocked() })
}

// testRepeatedResign requires that Resign can be called at any time, and more than once.
func testRepeatedResign(s *suite) {
	m, next := s.joinMember(0), s.joinMember(1)
	leader := s.waitLeader()
	if leader != m {
		m, next = next, m
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(m.resignAndCheck)
	}
	all.Wait()
	s.requireEventually("the other candidate becomes leader", func() bool { return next.isLeaderLocked() })
	m.resignAndCheck()
	s.requireContinuously("the other candidate remains leader", func() bool { return next.isLeaderLocked() })
}

// testLateReader requires that the election does not wait for a reader. A later status must
// replace an unread one, and Resign must discard an unread status.
func testLateReader(s *suite) {
	first := s.startMember(0, s.newCandidate(0))
	s.waitForRole("the first candidate becomes leader", first, leaderelection.Leader)
	second := s.startMember(1, s.newCandidate(1))
	third := s.joinMember(2)
	if third.isLeader() {
		s.Fatalf("%v: is leader while another candidate is leader", third)
	}
	first.resignAndCheck()
	s.expectClosed(first.Candidate)
	isLeader := func() bool { return second.Current().Role == leaderelection.Leader }
	if !s.pollUntil(s.group.Patience, func() bool { return isLeader() || third.isLeader() }) {
		s.Fatalf("no candidate becomes leader after the first%s", s.describeMembers())
	}
	if third.isLeader() { // the contract promises no order, so the third candidate may lead
		third.resignAndCheck()
		s.waitForRole("the last candidate becomes leader", second, leaderelection.Leader)
	}
	second.readStatuses()
	s.requireEventually("the slow reader receives a status", func() bool { return second.statuses > 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if second.last.Role != leaderelection.Leader || second.statuses > 1 {
		s.Errorf("%s: a slow reader must receive the newest status, not those that it missed", second.describe())
	}
}

func (m *member) isLeader() bool {
	m.suite.mu.Lock()
	defer m.suite.mu.Unlock()
	return m.isLeaderLocked()
}
