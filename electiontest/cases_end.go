package electiontest

import (
	"errors"
	"slices"

	"github.com/go-leaderelection/leaderelection"
)

// end has a candidate end the election. It returns false if the backend cannot.
func (s *suite) end(m *member) bool {
	s.Helper()
	var err error
	if !s.within(s.Patience, func() { err = m.EndElection() }) {
		s.Fatalf("%v: EndElection has not returned", m)
	}
	if s.NoEnd {
		if err == nil {
			s.Errorf("%v: EndElection returns nil, but the backend cannot end elections (NoEnd)", m)
		}
		s.stays("the election continues", func() bool { return s.leading() != nil })
		return false
	}
	if err != nil {
		s.Fatalf("%v: EndElection: %v", m, err)
	}
	return true
}

// expectEnded waits for the end of a candidacy by the end of the election.
func (s *suite) expectEnded(m *member) {
	s.Helper()
	s.await("the channel is closed when the election was ended", func() bool { return m.closed })
	if !m.ended() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(m.last.Err, leaderelection.ErrElectionOver) {
		s.Errorf("%s: the final status does not have the error %v", m.text(), leaderelection.ErrElectionOver)
	}
	if !errors.Is(m.err, leaderelection.ErrElectionOver) {
		s.Errorf("%s: ElectLeader returns %v, want %v", m.text(), m.err, leaderelection.ErrElectionOver)
	}
}

// endElection: a follower ends it, for all and those to come.
func endElection(s *suite) {
	members := s.joinAll(3)
	newcomer := s.make(3)
	leader := s.leader()
	follower := members[slices.IndexFunc(members, func(m *member) bool { return m != leader })]
	if !s.end(follower) {
		return
	}
	for _, m := range members {
		s.expectEnded(m)
	}
	for range 2 {
		s.end(follower)
		s.end(leader)
		leader.resign()
	}
	s.expectRefused(newcomer, leaderelection.ErrElectionOver)
	s.expectRefused(follower.Candidate, leaderelection.ErrCandidacyOver)
	s.stays("there is no leader", func() bool { return s.leading() == nil })
}

// endElectionLateReader: the final status is delivered however late somebody reads.
func endElectionLateReader(s *suite) {
	if s.NoEnd {
		s.Skipf("the backend cannot end elections")
	}
	late := s.enlist(0, s.make(0))
	s.awaitRole("it becomes leader", late, leaderelection.Leader)
	other := s.join(1)
	if !s.end(other) {
		return
	}
	s.expectEnded(other)
	late.read()
	s.expectEnded(late)
}
