package electiontest

import (
	"errors"
	"slices"

	"github.com/go-leaderelection/leaderelection"
)

// endElection calls EndElection of a member, and checks the result. It returns false if the
// backend cannot end elections.
func (s *suite) endElection(m *member) bool {
	s.Helper()
	var err error
	if !s.returnsWithin(s.group.Patience, func() { err = m.EndElection() }) {
		s.Fatalf("%v: EndElection has not returned", m)
	}
	if s.group.NoEnd {
		if err == nil {
			s.Errorf("%v: EndElection returns nil, but the backend cannot end elections (NoEnd)", m)
		}
		s.requireContinuously("the election continues", func() bool { return s.currentLeader() != nil })
		return false
	}
	if err != nil {
		s.Fatalf("%v: EndElection: %v", m, err)
	}
	return true
}

// expectEnded requires that the candidacy has ended because the election was ended.
func (s *suite) expectEnded(m *member) {
	s.Helper()
	s.requireEventually("the channel is closed when the election was ended", func() bool { return m.closed })
	if !m.checkEnded() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(m.last.Err, leaderelection.ErrElectionOver) {
		s.Errorf("%s: the final status does not have the error %v", m.describe(), leaderelection.ErrElectionOver)
	}
	if !errors.Is(m.err, leaderelection.ErrElectionOver) {
		s.Errorf("%s: ElectLeader returns %v, want %v", m.describe(), m.err, leaderelection.ErrElectionOver)
	}
}

// testEndElection requires that EndElection of a follower ends all candidacies, including those
// that begin later.
func testEndElection(s *suite) {
	members := s.joinMembers(3)
	late := s.newCandidate(3)
	leader := s.waitLeader()
	follower := members[slices.IndexFunc(members, func(m *member) bool { return m != leader })]
	if !s.endElection(follower) {
		return
	}
	for _, m := range members {
		s.expectEnded(m)
	}
	for range 2 {
		s.endElection(follower)
		s.endElection(leader)
		leader.resignAndCheck()
	}
	s.expectElectLeader(late, leaderelection.ErrElectionOver)
	s.expectElectLeader(follower.Candidate, leaderelection.ErrAlreadyStarted)
	s.requireContinuously("there is no leader", func() bool { return s.currentLeader() == nil })
}

// testEndElectionLateReader requires that a reader receives the final status when it starts to read
// after the election has ended.
func testEndElectionLateReader(s *suite) {
	if s.group.NoEnd {
		s.Skipf("the backend cannot end elections")
	}
	late := s.startMember(0, s.newCandidate(0))
	s.waitForRole("it becomes leader", late, leaderelection.Leader)
	other := s.joinMember(1)
	if !s.endElection(other) {
		return
	}
	s.expectEnded(other)
	late.readStatuses()
	s.expectEnded(late)
}
