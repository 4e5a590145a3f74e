package electiontest

import "slices"

// leaderCrashes: another one leads, and not before the leader has had to end by itself.
func leaderCrashes(s *suite) {
	if s.Crash == nil {
		s.Skipf("the backend has no Crash")
	}
	s.joinAll(3)
	for range 2 {
		leader := s.leader()
		leader.isLost()
		s.Crash(leader.program)
		s.await("another candidate becomes leader after a crash", func() bool {
			next := s.leading()
			return next != nil && next != leader
		})
		if leader.leadership().Err() == nil {
			s.Errorf("%v: still leader after its crash", leader)
		}
		leader.resign()
	}
}

// followerCrashes: that does not concern the leader, nor stop those behind.
func followerCrashes(s *suite) {
	if s.Crash == nil {
		s.Skipf("the backend has no Crash")
	}
	members := s.joinAll(3)
	leader := s.leader()
	l := leader.leadership()
	crashed := members[slices.IndexFunc(members, func(m *member) bool { return m != leader })]
	crashed.isLost()
	s.Crash(crashed.program)
	s.stays("the leader remains leader when a follower crashes", func() bool { return leader.leads() && leader.lead == l })
	leader.resign()
	s.await("the remaining candidate becomes leader", func() bool {
		next := s.leading()
		return next != nil && next != crashed
	})
}

// leaderIsCutOff: another one leads, and when the network is back the former leader is
// a follower, or its candidacy is over.
func leaderIsCutOff(s *suite) {
	if s.Cut == nil {
		s.Skipf("the backend has no Cut")
	}
	s.joinAll(3)
	leader := s.leader()
	l := leader.leadership()
	leader.isLost()
	heal := s.Cut(leader.program)
	var next *member
	s.await("another candidate becomes leader while the leader is cut off", func() bool {
		next = s.leading()
		return next != nil && next != leader
	})
	if l.Err() == nil {
		s.Errorf("%v: still leader while it is cut off", leader)
	}
	heal()
	s.stays("the new leader remains leader", func() bool { return s.leading() == next })
	s.await("the former leader is notified that it is not leader", func() bool { return leader.closed || leader.last.Leadership == nil })
	next.resign()
	if again := s.leader(); again == next {
		s.Fatalf("%v: still leader after Resign", next)
	}
}
