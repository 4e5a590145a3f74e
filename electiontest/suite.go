package electiontest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

const (
	// resignLimit is how long Resign may take. The contract permits two seconds, but the machine may be busy.
	resignLimit = 10 * time.Second
	// doneLimit is how long after the deadline of a leadership the suite waits for the close of Done.
	doneLimit = 10 * time.Second
	// pollInterval is the interval between two evaluations of a condition.
	pollInterval = 10 * time.Millisecond
)

// suite runs one case.
type suite struct {
	TB
	group   *Group
	done    chan struct{} // closed when the case returns, to end the goroutines that read channels
	readers sync.WaitGroup

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at each change
	members    []*member
	candidates []leaderelection.Candidate
	// latestToken is the token of the latest leadership that had not ended when its status was
	// read. latestLeader is the member with that leadership.
	latestToken   int64
	latestLeader  *member
	reportOverlap bool // whether to report an overlap; false after the first one
}

func newSuite(t TB, g *Group) *suite {
	if g.Patience == 0 {
		g.Patience = 30 * time.Second
	}
	return &suite{TB: t, group: g, done: make(chan struct{}), changed: make(chan struct{}), reportOverlap: true}
}

// resignAll resigns all candidates, and waits for the goroutines of the suite.
func (s *suite) resignAll() {
	s.Helper()
	s.mu.Lock()
	members, candidates := s.members, s.candidates
	s.mu.Unlock()
	var leaving sync.WaitGroup
	for _, m := range members {
		leaving.Go(m.resignIfNecessary)
	}
	leaving.Wait()
	for _, c := range candidates { // candidates that were never started, or have already resigned, are resigned as well
		s.returnsWithin(resignLimit, func() { _ = c.Resign() })
	}
	close(s.done)
	s.readers.Wait()
}

// requireEventually waits until cond is true. If that takes too long, it fails the test. It calls
// cond with mu held.
func (s *suite) requireEventually(what string, cond func() bool) {
	s.Helper()
	if !s.waitUntil(s.group.Patience, cond) {
		s.Fatalf("%s: not within %v%s", what, s.group.Patience, s.describeMembers())
	}
}

// waitUntil waits until cond returns true, for limit at most, and reports whether it
// does. It calls cond with mu held.
func (s *suite) waitUntil(limit time.Duration, cond func() bool) bool {
	return s.pollUntil(limit, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return cond()
	})
}

// broadcastChange wakes the goroutines that wait for a condition. The caller holds mu.
func (s *suite) broadcastChange() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// waitForRole waits until Current returns the role. The statuses need not be read.
func (s *suite) waitForRole(what string, c leaderelection.Candidate, role leaderelection.Role) {
	s.Helper()
	if !s.pollUntil(s.group.Patience, func() bool { return c.Current().Role == role }) {
		s.Fatalf("%s: not within %v%s", what, s.group.Patience, s.describeMembers())
	}
}

// pollUntil waits until cond returns true, for limit at most, and reports whether it
// does. Meanwhile it checks that there are no two leaders.
func (s *suite) pollUntil(limit time.Duration, cond func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		s.mu.Lock()
		s.checkSingleLeader()
		changed := s.changed
		s.mu.Unlock()
		if cond() {
			return true
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-timer.C:
			return false
		}
	}
}

// requireContinuously fails the test if cond becomes false within a short time.
func (s *suite) requireContinuously(what string, cond func() bool) {
	s.Helper()
	if s.waitUntil(20*pollInterval, func() bool { return !cond() }) {
		s.Fatalf("%s: not long enough%s", what, s.describeMembers())
	}
}

// returnsWithin calls f on a new goroutine, and reports whether f returns within limit.
func (s *suite) returnsWithin(limit time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// waitLeader waits until a member is leader, and returns it.
func (s *suite) waitLeader() (m *member) {
	s.Helper()
	s.requireEventually("a candidate becomes leader", func() bool {
		m = s.currentLeader()
		return m != nil
	})
	return m
}

// awaitDone waits until Done of the leadership is closed, for doneLimit at most, and reports whether it is.
func (s *suite) awaitDone(l *leaderelection.Leadership) bool {
	return s.returnsWithin(doneLimit, func() {
		select {
		case <-l.Done():
		case <-s.done:
		}
	})
}

// currentLeader returns the member that is leader, or nil. The caller holds mu.
func (s *suite) currentLeader() *member {
	for _, m := range s.members {
		if m.isLeaderLocked() {
			return m
		}
	}
	return nil
}

// nextMembers returns the members that are next. The caller holds mu.
func (s *suite) nextMembers() (next []*member) {
	for _, m := range s.members {
		if !m.closed && m.last.Next {
			next = append(next, m)
		}
	}
	return next
}

// checkSingleLeader fails the test if two leaderships exist at the same time. The statuses of both were read, so
// the earlier leadership should have ended before the status of the later one was delivered. If the deadline of a
// leadership has passed, Done may be closed late, because the machine may be busy. The caller holds mu.
func (s *suite) checkSingleLeader() {
	var leaders []string
	for _, m := range s.members {
		if !m.isLeaderLocked() || isExpired(m.latest, 0) && !isExpired(m.latest, doneLimit) {
			continue
		}
		leaders = append(leaders, m.describe())
	}
	if len(leaders) > 1 && s.reportOverlap {
		s.reportOverlap = false // report it only once
		s.Errorf("more than one leader: %s", strings.Join(leaders, "; "))
	}
}

// describeMembers describes all members for messages.
func (s *suite) describeMembers() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, m := range s.members {
		fmt.Fprintf(&b, "\n\t%s", m.describe())
	}
	return b.String()
}

// newCandidate creates a candidate of program i, without starting it.
func (s *suite) newCandidate(i int) leaderelection.Candidate {
	s.Helper()
	c, err := s.group.New(i)
	if err != nil || c == nil {
		s.Fatalf("new candidate in program %d: %v", i, err)
	}
	s.mu.Lock()
	s.candidates = append(s.candidates, c)
	s.mu.Unlock()
	return c
}

// joinMember starts a candidate of program i, and waits for its first status.
func (s *suite) joinMember(i int) *member {
	s.Helper()
	m := s.startMember(i, s.newCandidate(i))
	m.readStatuses()
	s.requireEventually(fmt.Sprintf("first status of program %d", i), func() bool { return m.statuses > 0 || m.closed })
	if m.isClosed() {
		s.Fatalf("the candidacy ended immediately: %v", m)
	}
	return m
}

// joinMembers starts candidates of n programs, one after another.
func (s *suite) joinMembers(n int) (members []*member) {
	s.Helper()
	for i := range n {
		members = append(members, s.joinMember(i))
	}
	return members
}
