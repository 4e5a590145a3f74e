package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// RunElection runs elections on the stores, each case as a subtest. Each candidate uses a
// separate store.
func RunElection(t *testing.T, f Factory, opts ...Option) { runCases(t, f, opts, ElectionCases()) }

// ElectionCases returns the cases of [RunElection].
func ElectionCases() []Case {
	return []Case{
		{"FirstLeader", testFirstLeader},
		{"ConcurrentStart", testConcurrentStart},
		{"Resign", testResign},
		{"Transfer", testTransfer},
		{"Prefer", testPrefer},
		{"EndAndRestart", testEndAndRestart},
		{"RecordLost", testRecordLost},
		{"StoreClosed", testStoreClosed},
		{"ServerRestart", testServerRestart},
	}
}

// testFirstLeader requires that a single candidate becomes leader, with a token above the wall clock's
// time, and remains leader.
func testFirstLeader(s *suite) {
	least := time.Now().UnixMilli()
	e := s.newElection(1)
	c := e.awaitLeader()
	if token := e.tokenOf(c); token <= least {
		s.Errorf("the first token is %d, which is not above the wall clock's time, %d", token, least)
	}
	e.resign(e.awaitStableLeader())
}

// testConcurrentStart requires that candidates that create the record at the same time have one leader.
func testConcurrentStart(s *suite) {
	e := s.newElection(0)
	candidates := make([]*candidate, 4)
	errs := make([]error, len(candidates))
	var running sync.WaitGroup
	for i := range candidates {
		running.Go(func() { candidates[i], errs[i] = e.newCandidate(fmt.Sprint("candidate ", i)) })
	}
	running.Wait()
	for i, c := range candidates {
		if errs[i] != nil {
			s.Fatalf("concurrent calls of NewElection: %v", errs[i])
		}
		e.start(c)
	}
	e.awaitStableLeader()
	e.await("all candidates but one follow the leader", func() bool {
		for _, leader := range candidates {
			followers := 0
			for _, c := range candidates {
				if c != leader && c.status.NowFollowing == leader.name {
					followers++
				}
			}
			if followers == len(candidates)-1 && leader.isLeader() {
				return true
			}
		}
		return false
	})
}

// testResign requires that the next candidate becomes leader immediately after Resign, and not after an election timeout.
// It measures several hand-overs in succession: on a busy machine, a single one can take as long as an election
// timeout, but not all of them, unless candidates wait for the timeout.
func testResign(s *suite) {
	e := s.newElection(3)
	limit := time.Now().Add(e.waitLimit())
	for i := 0; ; i++ {
		first := e.awaitStableLeader()
		begin := time.Now()
		e.resign(first)
		e.awaitLeader(first)
		d := time.Since(begin)
		if d < 5*s.backend.Heartbeat {
			return
		}
		if time.Now().After(limit) {
			s.Fatalf("after Resign there is no leader for %v, an election timeout", d)
		}
		e.join(fmt.Sprint("successor ", i)) // Replace the candidate that has resigned.
	}
}

// testTransfer requires that Transfer, with the store of any candidate, makes the candidate with the given ID
// the leader.
func testTransfer(s *suite) {
	e := s.newElection(3)
	leader := e.awaitStableLeader()
	for _, caller := range e.candidates {
		for tries := 1; ; tries++ {
			var target *candidate
			for _, c := range e.candidates {
				if c != leader {
					target = c
				}
			}
			err := changefeed.Transfer(s.ctx(), caller.store, target.name, e.options()...)
			if err == nil {
				leader = target
				break
			}
			// Try again, because a candidate on a busy machine may not claim the record within an
			// election timeout, and then loses its priority.
			if !errors.Is(err, changefeed.ErrNotTransferred) || tries == 5 {
				s.Fatalf("%v, in attempt %d", err, tries)
			}
		}
	}
	e.awaitStableLeader()
}

// testPrefer requires that a candidate of higher priority takes over from the leader.
func testPrefer(s *suite) {
	e := s.newElection(3)
	first := e.awaitStableLeader()
	var best *candidate
	for _, c := range e.candidates {
		if c != first {
			best = c
		}
	}
	priority := func(c leaderelection.CandidateInfo) int {
		if c.ID == best.name {
			return 1
		}
		return 0
	}
	ctx, cancel := context.WithCancel(context.Background())
	var preferring sync.WaitGroup
	defer preferring.Wait()
	defer cancel()
	for _, c := range e.candidates {
		preferring.Go(func() {
			err := changefeed.NewQueue(c.Election).Prefer(ctx, c, priority, 4*s.backend.Heartbeat)
			s.requireError("Prefer of "+c.name, err, context.Canceled)
		})
	}
	limit := time.Now().Add(e.waitLimit())
	for leader := first; leader != best; leader = e.awaitStableLeader() {
		if time.Now().After(limit) {
			s.Fatalf("%s has not taken over from %s", best.name, leader.name)
		}
	}
}

// testEndAndRestart requires that EndElection ends all candidacies, and that tokens increase in the
// restarted election.
func testEndAndRestart(s *suite) {
	e := s.newElection(3)
	e.awaitLeader()
	// On a busy machine EndElection may return before the store has answered, and continue in the
	// background.
	if err := e.candidates[0].EndElection(); err != nil && !errors.Is(err, leaderelection.ErrUnconfirmed) {
		s.Fatalf("EndElection: %v", err)
	}
	for _, c := range e.candidates {
		select {
		case err := <-c.ended:
			s.requireError(c.name+" after the end", err, leaderelection.ErrElectionOver)
		case <-time.After(e.waitLimit()):
			s.Fatalf("%s was not notified of the end of the election", c.name)
		}
	}
	before := e.greatestToken()
	late, err := e.newCandidate("late")
	if err != nil {
		s.Fatalf("NewElection after the end: %v", err)
	}
	s.requireError("a candidate that joins after the end", late.ElectLeader(), leaderelection.ErrElectionOver)

	if err := changefeed.DeleteElection(s.newStore()); err != nil {
		s.Errorf("DeleteElection after the end: %v", err)
	}
	if err := changefeed.RestartElection(s.newStore(), e.options()...); err != nil {
		s.Fatalf("RestartElection: %v", err)
	}
	next := e.join("next")
	if leader := e.awaitLeader(); leader != next || e.tokenOf(next) <= before {
		s.Errorf("after the restart %s is leader with token %d, after %d", leader.name, e.tokenOf(leader), before)
	}
	s.requireError("RestartElection of an election that has not ended", changefeed.RestartElection(s.newStore()), changefeed.ErrNotEnded)
}

// testRecordLost requires that the leader stops when the record is deleted, and that there is a leader
// with a greater token afterwards.
func testRecordLost(s *suite) {
	if s.backend.Lose == nil {
		s.Skipf("the backend has no Lose")
	}
	e := s.newElection(3)
	first := e.awaitLeader()
	e.mu.Lock()
	l := first.leadership
	e.mu.Unlock()
	s.backend.Lose(s)
	select {
	case <-l.Done():
	case <-time.After(e.waitLimit()):
		s.Fatalf("%s is still leader without a record", first.name)
	}
	e.awaitStableLeader()
}

// testStoreClosed requires that the candidacy of a candidate ends when its store is closed, and that
// another candidate becomes leader.
func testStoreClosed(s *suite) {
	e := s.newElection(3)
	leader := e.awaitLeader()
	_ = leader.store.Close()
	select {
	case err := <-leader.ended:
		s.requireError("the candidate whose store was closed", err, changefeed.ErrClosed)
		s.requireError("the candidate whose store was closed", err, leaderelection.ErrConnClosed)
	case <-time.After(e.waitLimit()):
		s.Fatalf("a candidate did not detect that its store was closed")
	}
	e.awaitLeader(leader)
}

// testServerRestart requires that there is a leader after a restart of the server.
func testServerRestart(s *suite) {
	if s.backend.Restart == nil {
		s.Skipf("the backend has no Restart")
	}
	e := s.newElection(3)
	e.awaitLeader()
	for range 2 {
		s.backend.Restart(s)
		time.Sleep(3 * s.backend.Heartbeat) // Wait until the lease from before the restart has expired.
		e.awaitStableLeader()
	}
}
