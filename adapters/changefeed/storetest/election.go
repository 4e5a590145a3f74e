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
func RunElection(t *testing.T, f Factory, opts ...Option) { run(t, f, opts, ElectionCases()) }

// ElectionCases returns the cases of [RunElection].
func ElectionCases() []Case {
	return []Case{
		{"FirstLeader", firstLeader},
		{"TogetherAtFirst", togetherAtFirst},
		{"ResignHandsOver", resignHandsOver},
		{"Nominee", nominee},
		{"EndAndRestart", endAndRestart},
		{"RecordLost", recordLost},
		{"StoreCloses", storeCloses},
		{"RestartOfTheServer", restartOfTheServer},
	}
}

// firstLeader: a single candidate leads after an election timeout, with a token above the wall
// clock's number, and continues to lead.
func firstLeader(s *suite) {
	least := time.Now().UnixMilli()
	v := s.voters(1)
	c := v.leader()
	if token := v.token(c); token <= least {
		s.Errorf("the first token is %d, which is not above the wall clock's time, %d", token, least)
	}
	v.resign(v.settled())
}

// togetherAtFirst: candidates that create the record at the same time have one leader.
func togetherAtFirst(s *suite) {
	v := s.voters(0)
	cs := make([]*voter, 4)
	errs := make([]error, len(cs))
	var all sync.WaitGroup
	for i := range cs {
		all.Go(func() { cs[i], errs[i] = v.candidate(fmt.Sprint("candidate ", i)) })
	}
	all.Wait()
	for i, c := range cs {
		if errs[i] != nil {
			s.Fatalf("concurrent calls of NewElection: %v", errs[i])
		}
		v.enter(c)
	}
	v.settled()
	v.await("all candidates but one follow the leader", func() bool {
		for _, leader := range cs {
			followers := 0
			for _, c := range cs {
				if c != leader && c.status.NowFollowing == leader.name {
					followers++
				}
			}
			if followers == len(cs)-1 && leader.lead != nil && leader.lead.Err() == nil {
				return true
			}
		}
		return false
	})
}

// resignHandsOver: after Resign the next candidate leads immediately, and not after an election
// timeout. A single hand-over can take as long as that if the machine is busy; several in
// succession cannot, unless candidates wait for the timeout.
func resignHandsOver(s *suite) {
	v := s.voters(3)
	limit := time.Now().Add(v.limit())
	for i := 0; ; i++ {
		first := v.settled()
		begin := time.Now()
		v.resign(first)
		v.leader(first)
		d := time.Since(begin)
		if d < 5*v.Heartbeat {
			return
		}
		if time.Now().After(limit) {
			s.Fatalf("after Resign there is no leader for %v, an election timeout", d)
		}
		v.join(fmt.Sprint("successor ", i)) // so that there are three again
	}
}

// nominee: Elect, called on any candidate, makes the nominated candidate the leader.
func nominee(s *suite) {
	v := s.voters(3)
	leader := v.settled()
	for _, by := range v.all {
		for tries := 1; ; tries++ {
			var next *voter
			for _, c := range v.all {
				if c != leader {
					next = c
				}
			}
			var err error
			if leader, err = v.elect(by, next); err != nil {
				s.Fatalf("Elect: %v", err)
			}
			if leader == next {
				break
			}
			// A nominee that does not claim the record within an election timeout loses its
			// priority, as happens when the machine is busy.
			if tries == 5 {
				s.Fatalf("%s became leader %d times although %s was nominated", leader.name, tries, next.name)
			}
		}
	}
	v.settled()
}

// elect has by nominate next, and returns the candidate that obtains the next leadership.
func (v *voters) elect(by, next *voter) (elected *voter, err error) {
	v.Helper()
	v.mu.Lock()
	before := v.latest
	v.mu.Unlock()
	if err := by.Elect(v.ctx(), next.name); err != nil {
		return nil, err
	}
	v.await("another leadership after Elect", func() bool {
		elected = v.holder
		return v.latest > before
	})
	return elected, nil
}

// endAndRestart: the end is for everybody, and terms go on after it.
func endAndRestart(s *suite) {
	v := s.voters(3)
	v.leader()
	// On a busy machine EndElection may return before the store has answered, and continues.
	if err := v.all[0].EndElection(); err != nil && !errors.Is(err, leaderelection.ErrUnconfirmed) {
		s.Fatalf("EndElection: %v", err)
	}
	for _, c := range v.all {
		select {
		case err := <-c.ended:
			s.is(c.name+" after the end", err, leaderelection.ErrElectionOver)
		case <-time.After(v.limit()):
			s.Fatalf("%s was not notified of the end of the election", c.name)
		}
	}
	v.mu.Lock()
	before := v.latest
	v.mu.Unlock()
	late, err := v.candidate("late")
	if err != nil {
		s.Fatalf("NewElection after the end: %v", err)
	}
	s.is("a newcomer", late.ElectLeader(), leaderelection.ErrElectionOver)

	if err := changefeed.DeleteElection(s.store()); err != nil {
		s.Errorf("DeleteElection after the end: %v", err)
	}
	if err := changefeed.RestartElection(s.store(), v.options()...); err != nil {
		s.Fatalf("RestartElection: %v", err)
	}
	again := v.join("again")
	if next := v.leader(); next != again || v.token(again) <= before {
		s.Errorf("after the restart %s is leader with token %d, after %d", next.name, v.token(next), before)
	}
	s.is("RestartElection of an election that has not ended", changefeed.RestartElection(s.store()), changefeed.ErrNotEnded)
}

// recordLost: it is made anew, nobody leads too early, and terms go on.
func recordLost(s *suite) {
	if s.Lose == nil {
		s.Skipf("the backend has no Lose")
	}
	v := s.voters(3)
	first := v.leader()
	v.mu.Lock()
	l := first.lead
	v.mu.Unlock()
	s.Lose(s)
	select {
	case <-l.Done():
	case <-time.After(v.limit()):
		s.Fatalf("%s is still leader without a record", first.name)
	}
	v.settled()
}

// storeCloses: a candidate whose store is closed is told so, and the others go on.
func storeCloses(s *suite) {
	v := s.voters(3)
	leader := v.leader()
	_ = leader.store.Close()
	select {
	case err := <-leader.ended:
		s.is("the candidate whose store was closed", err, changefeed.ErrClosed)
		s.is("the candidate whose store was closed", err, leaderelection.ErrConnClosed)
	case <-time.After(v.limit()):
		s.Fatalf("a candidate did not detect that its store was closed")
	}
	v.leader(leader)
}

// restartOfTheServer: somebody leads afterwards, and never two.
func restartOfTheServer(s *suite) {
	if s.Restart == nil {
		s.Skipf("the backend has no Restart")
	}
	v := s.voters(3)
	v.leader()
	for range 2 {
		s.Restart(s)
		ctx, cancel := context.WithTimeout(context.Background(), 3*v.Heartbeat)
		<-ctx.Done() // so that what was in memory of before is over
		cancel()
		v.settled()
	}
}
