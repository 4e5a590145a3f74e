package electiontest

import (
	"errors"
	"slices"

	"github.com/go-leaderelection/leaderelection"
)

// testLeaderCrashes requires that another candidate becomes leader after the crash of the leader, and
// not before the leadership has ended.
func testLeaderCrashes(s *suite) {
	if s.group.Crash == nil {
		s.Skipf("the backend has no Crash")
	}
	const crashes = 2
	s.joinMembers(crashes + 1)
	resigned := 0
	for range crashes {
		leader := s.waitLeader()
		leader.markLost()
		s.group.Crash(leader.program)
		var next *member
		s.requireEventually("another candidate becomes leader after a crash", func() bool {
			next = s.currentLeader()
			return next != nil && next != leader
		})
		if errors.Is(next.formerErr(), leaderelection.ErrResigned) {
			// One ErrResigned need not be an error: on a machine that stalls, another candidate can
			// have led and resigned in between.
			resigned++
		}
		if !s.awaitDone(leader.latestLeadership()) {
			s.Errorf("%v: still leader after its crash", leader)
		}
		leader.resignAndCheck()
	}
	if resigned == crashes {
		s.Errorf("after each crash, FormerErr of the next leader is %v", leaderelection.ErrResigned)
	}
}

// testFollowerCrashes requires that the leadership continues after the crash of a follower, and that
// the remaining follower can become leader.
func testFollowerCrashes(s *suite) {
	if s.group.Crash == nil {
		s.Skipf("the backend has no Crash")
	}
	members := s.joinMembers(3)
	leader := s.waitLeader()
	l := leader.latestLeadership()
	crashed := members[slices.IndexFunc(members, func(m *member) bool { return m != leader })]
	crashed.markLost()
	s.group.Crash(crashed.program)
	s.requireContinuously("the leader remains leader when a follower crashes", func() bool { return leader.isLeaderLocked() && leader.latest == l })
	leader.resignAndCheck()
	s.requireEventually("the remaining candidate becomes leader", func() bool {
		next := s.currentLeader()
		return next != nil && next != crashed
	})
}

// testLeaderCutOff requires that another candidate becomes leader while the leader is cut off, and
// that the former leader is a follower or its candidacy is over when it is connected again.
func testLeaderCutOff(s *suite) {
	if s.group.Cut == nil {
		s.Skipf("the backend has no Cut")
	}
	s.joinMembers(3)
	leader := s.waitLeader()
	l := leader.latestLeadership()
	leader.markLost()
	heal := s.group.Cut(leader.program)
	var next *member
	s.requireEventually("another candidate becomes leader while the leader is cut off", func() bool {
		next = s.currentLeader()
		return next != nil && next != leader
	})
	if !s.awaitDone(l) {
		s.Errorf("%v: still leader while it is cut off", leader)
	}
	heal()
	s.requireContinuously("the new leader remains leader", func() bool { return s.currentLeader() == next })
	s.requireEventually("the former leader is notified that it is not leader", func() bool { return leader.closed || leader.last.Leadership == nil })
	next.resignAndCheck()
	if again := s.waitLeader(); again == next {
		s.Fatalf("%v: still leader after Resign", next)
	}
}
