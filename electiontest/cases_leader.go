package electiontest

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// testSingleCandidate requires that a single candidate becomes leader, remains leader, and can resign.
func testSingleCandidate(s *suite) {
	m := s.joinMember(0)
	s.waitLeader()
	s.mu.Lock()
	status := m.last
	s.mu.Unlock()
	l := status.Leadership
	if id := m.ID(); id == "" || id != status.CandidateID {
		s.Errorf("ID returns %q, but the status contains the ID %q: %v", id, status.CandidateID, status)
	}
	if current := m.Current(); current.Role != leaderelection.Leader || current.Leadership != l {
		s.Errorf("Current returns %v after the status %v", current, status)
	}
	if d := l.Deadline(); !d.IsZero() && time.Until(d) <= 0 {
		s.Errorf("the candidate is leader, but its deadline was at %v, %v ago", d, -time.Until(d))
	}
	s.requireContinuously("a single candidate remains leader", func() bool { return m.isLeaderLocked() })
	m.resignAndCheck()
	if err := l.Err(); !errors.Is(err, leaderelection.ErrResigned) {
		s.Errorf("after Resign Err of the leadership is %v, want %v", err, leaderelection.ErrResigned)
	}
}

// testSingleLeader requires that exactly one candidate is leader, and the others are followers.
func testSingleLeader(s *suite) {
	members := s.joinMembers(groupSize)
	leader := s.waitLeader()
	s.requireContinuously("exactly one candidate is leader", func() bool {
		for _, m := range members {
			if m.isLeaderLocked() != (m == leader) {
				return false
			}
		}
		return true
	})
	for _, m := range members {
		if role := m.Current().Role; m != leader && role != leaderelection.Follower {
			s.Errorf("%v: is %v while another candidate is leader", m, role)
		}
	}
}

// testHandOver requires that another candidate becomes leader when the leader resigns, until no
// candidate remains.
func testHandOver(s *suite) {
	s.joinMembers(groupSize)
	expired := 0
	for i := range groupSize {
		leader := s.waitLeader()
		leader.resignAndCheck()
		if i == groupSize-1 {
			break
		}
		next := s.waitLeader()
		if next == leader {
			s.Fatalf("%v: still leader after Resign", leader)
		}
		if errors.Is(next.formerErr(), leaderelection.ErrLeaseExpired) {
			expired++ // one ErrLeaseExpired need not be an error: leases also expire on a machine that stalls
		}
	}
	if expired == groupSize-1 {
		s.Errorf("after each Resign, FormerErr of the next leader is %v", leaderelection.ErrLeaseExpired)
	}
	s.requireContinuously("there is no leader", func() bool { return s.currentLeader() == nil })
}

// testNext requires that at most one candidate is next, and that it becomes leader when the leader resigns.
// If the group is InOrder, it must be the candidate that has joined after the leader.
func testNext(s *suite) {
	members := s.joinMembers(4)
	for range len(members) - 1 {
		leader := s.waitLeader()
		s.requireEventually("at most one candidate is next", func() bool {
			n := len(s.nextMembers())
			return n == 1 || n == 0 && !s.group.InOrder
		})
		s.requireContinuously("the same candidates are next", func() bool { return len(s.nextMembers()) <= 1 })
		s.mu.Lock()
		next := s.nextMembers()
		s.mu.Unlock()
		leader.resignAndCheck()
		if got := s.waitLeader(); len(next) == 1 && got != next[0] {
			s.Errorf("%v: becomes leader, and not %v, which was next", got, next[0])
		}
		members = slices.DeleteFunc(members, func(m *member) bool { return m == leader })
		if s.group.InOrder && len(next) == 1 && next[0] != members[0] {
			s.Errorf("%v: is next, but %v has joined before", next[0], members[0])
		}
	}
}

// testFollowerResigns requires that the leadership continues when a follower resigns, and that the
// remaining follower can become leader.
func testFollowerResigns(s *suite) {
	members := s.joinMembers(3)
	leader := s.waitLeader()
	l := leader.latestLeadership()
	i := slices.IndexFunc(members, func(m *member) bool { return m != leader })
	members[i].resignAndCheck()
	s.requireContinuously("the leader remains leader when a follower leaves", func() bool { return leader.isLeaderLocked() && leader.latest == l })
	leader.resignAndCheck()
	s.waitLeader().resignAndCheck()
}

// testChurn lets all programs join and resign concurrently, and requires that a candidate can become
// leader afterwards.
func testChurn(s *suite) {
	var all sync.WaitGroup
	for i := range groupSize {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 5))
			for range 8 {
				c, err := s.group.New(i)
				if err != nil {
					s.Errorf("new candidate in program %d: %v", i, err)
					return
				}
				m := s.startMember(i, c)
				m.readStatuses()
				wait := []func() bool{
					func() bool { return true },
					func() bool { return m.statuses > 0 },
					func() bool { return m.latest != nil },
				}[r.IntN(3)]
				if !s.waitUntil(s.group.Patience, func() bool { return wait() || m.closed }) {
					s.Errorf("%v: not elected in time", m)
				}
				m.resignAndCheck()
			}
		})
	}
	all.Wait()
	m := s.joinMember(0)
	s.requireEventually("the last candidate becomes leader", func() bool { return m.isLeaderLocked() })
}

// testLeaks requires that candidacies that are over leave no goroutine running.
func testLeaks(s *suite) {
	s.joinMember(0)
	s.waitLeader()
	for range 3 { // the first rounds start the goroutines that a backend starts only once
		s.joinMember(1).resignAndCheck()
	}
	const n = 20
	before := countGoroutines()
	for range n {
		s.joinMember(1).resignAndCheck()
	}
	after := 0
	if !s.waitUntil(s.group.Patience, func() bool {
		after = countGoroutines()
		return after < before+n/2
	}) {
		s.Errorf("after %d candidacies have ended there are %d additional goroutines", n, after-before)
	}
}

// countGoroutines returns the exact number of goroutines. It stops the world. runtime.NumGoroutine reads
// several counters while other processors change them, so its result can be wrong by 32, the number of dead
// goroutines that a processor moves to the global free list at a time.
func countGoroutines() int {
	n, _ := runtime.GoroutineProfile(make([]runtime.StackRecord, 1))
	return n
}
