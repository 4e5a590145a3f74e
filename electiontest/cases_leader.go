package electiontest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/goroutines"
)

// one: a single candidate leads, and leaves.
func one(s *suite) {
	m := s.join(0)
	s.leader()
	s.mu.Lock()
	status := m.last
	s.mu.Unlock()
	l := status.Leadership
	if id := m.ID(); id == "" || id != status.CandidateID {
		s.Errorf("ID is %q, but %q in %v", id, status.CandidateID, status)
	}
	if current := m.Current(); current.Role != leaderelection.Leader || current.Leadership != l {
		s.Errorf("Current is %v after %v", current, status)
	}
	if d := l.Deadline(); !d.IsZero() && time.Until(d) <= 0 {
		s.Errorf("is leader, but its deadline was at %v, %v ago", d, -time.Until(d))
	}
	s.stays("a single candidate remains leader", func() bool { return m.leads() })
	m.resign()
	if err := l.Err(); !errors.Is(err, leaderelection.ErrResigned) {
		s.Errorf("after Resign Err of the leadership is %v, want %v", err, leaderelection.ErrResigned)
	}
}

// oneOfMany: one of those who take part leads, the others follow.
func oneOfMany(s *suite) {
	members := s.joinAll(programs)
	leader := s.leader()
	s.stays("exactly one candidate is leader", func() bool {
		for _, m := range members {
			if m.leads() != (m == leader) {
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

// handOver: when the leader resigns another one leads, until nobody is left.
func handOver(s *suite) {
	s.joinAll(programs)
	for i := range programs {
		leader := s.leader()
		leader.resign()
		if i == programs-1 {
			break
		}
		if next := s.leader(); next == leader {
			s.Fatalf("%v: still leader after Resign", leader)
		}
	}
	s.stays("there is no leader", func() bool { return s.leading() == nil })
}

// followerLeaves: that does not concern the leader, and the one behind moves up.
func followerLeaves(s *suite) {
	members := s.joinAll(3)
	leader := s.leader()
	l := leader.leadership()
	i := slices.IndexFunc(members, func(m *member) bool { return m != leader })
	members[i].resign()
	s.stays("the leader remains leader when a follower leaves", func() bool { return leader.leads() && leader.lead == l })
	leader.resign()
	s.leader().resign()
}

// churn: everybody comes and goes at the same time, and in the end somebody can lead.
func churn(s *suite) {
	var all sync.WaitGroup
	for i := range programs {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 5))
			for range 8 {
				c, err := s.New(i)
				if err != nil {
					s.Errorf("new candidate in program %d: %v", i, err)
					return
				}
				m := s.enlist(i, c)
				m.read()
				wait := []func() bool{
					func() bool { return true },
					func() bool { return m.told > 0 },
					func() bool { return m.lead != nil },
				}[r.IntN(3)]
				if !s.reached(s.Patience, func() bool { return wait() || m.closed }) {
					s.Errorf("%v: not elected in time", m)
				}
				m.resign()
			}
		})
	}
	all.Wait()
	m := s.join(0)
	s.await("the last candidate becomes leader", func() bool { return m.leads() })
}

// leaks: candidates that are over leave no goroutine behind.
func leaks(s *suite) {
	s.join(0)
	s.leader()
	for range 3 { // what is started once
		s.join(1).resign()
	}
	const n = 20
	before := goroutines.Count()
	for range n {
		s.join(1).resign()
	}
	after := 0
	if !s.reached(s.Patience, func() bool {
		after = goroutines.Count()
		return after < before+n/2
	}) {
		s.Errorf("after %d candidacies have ended there are %d additional goroutines", n, after-before)
	}
}
