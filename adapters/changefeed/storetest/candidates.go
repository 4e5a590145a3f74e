package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// election runs the candidates of one election. It fails the test if there are two leaders, or if
// tokens do not increase.
type election struct {
	testing.TB
	suite *suite

	mu         sync.Mutex
	candidates []*candidate
	changed    chan struct{} // changed is closed when a candidate has received a status, and then replaced.
	lastToken  int64         // lastToken is the greatest token of all leaderships.
	lastLeader *candidate    // lastLeader is the candidate with lastToken.
	reported   bool          // reported is true after the test has failed because of two leaders.
}

// candidate is a candidate of an election.
type candidate struct {
	*changefeed.Election
	name         string
	store        changefeed.Store
	ended        chan error    // ended receives the result of ElectLeader, and is then closed.
	statusClosed chan struct{} // statusClosed is closed after the last status.

	// The mutex of the election guards these fields.
	leadership *leaderelection.Leadership // leadership is the last leadership.
	status     leaderelection.Status
}

// newElection returns an election with n candidates.
func (s *suite) newElection(n int) *election {
	s.Helper()
	e := &election{TB: s.TB, suite: s, changed: make(chan struct{})}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // This goroutine finds two leaders even while the case does not call the election.
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
				e.mu.Lock()
				e.checkLeaders()
				e.mu.Unlock()
			}
		}
	}()
	s.Cleanup(func() {
		e.mu.Lock()
		candidates := e.candidates
		e.mu.Unlock()
		for _, c := range candidates {
			_ = c.Resign()
			<-c.ended
			<-c.statusClosed
		}
		close(stop)
		<-stopped
	})
	for i := range n {
		e.join(fmt.Sprint("candidate ", i))
	}
	return e
}

// join starts another candidate.
func (e *election) join(name string) *candidate {
	e.Helper()
	c, err := e.newCandidate(name)
	if err != nil {
		e.Fatalf("NewElection: %v", err)
	}
	e.start(c)
	return c
}

// newCandidate returns a candidate that has not started, with its own store.
func (e *election) newCandidate(name string) (*candidate, error) {
	e.Helper()
	c := &candidate{name: name, store: e.suite.newStore(), ended: make(chan error, 1), statusClosed: make(chan struct{})}
	var err error
	c.Election, err = changefeed.NewElection(c.store, e.options(changefeed.WithID(name))...)
	return c, err
}

// options returns the options of the candidates. A lease is longer than four heartbeats, so that a machine that pauses
// for a second does not end leaderships.
func (e *election) options(more ...changefeed.Option) []changefeed.Option {
	h := e.suite.backend.Heartbeat
	return append(more, changefeed.WithHeartbeat(h), changefeed.WithElectionTimeout(5*h, 6*h))
}

func (e *election) start(c *candidate) {
	e.mu.Lock()
	e.candidates = append(e.candidates, c)
	e.mu.Unlock()
	go func() { c.ended <- c.ElectLeader(); close(c.ended) }()
	go func() {
		defer close(c.statusClosed)
		for status := range c.Status() {
			e.receiveStatus(c, status)
		}
	}()
}

func (e *election) receiveStatus(c *candidate, status leaderelection.Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.status = status
	if l := status.Leadership; l != nil && l != c.leadership {
		c.leadership = l
		if l.Err() == nil {
			if l.Token() <= e.lastToken {
				e.Errorf("%s is leader with token %d, after token %d", c.name, l.Token(), e.lastToken)
			}
			e.lastToken, e.lastLeader = l.Token(), c
		}
	}
	e.checkLeaders()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (c *candidate) isLeader() bool { return c.leadership != nil && c.leadership.Err() == nil }

// checkLeaders fails the test if there are two leaders. The caller must hold mu.
func (e *election) checkLeaders() {
	var first *candidate
	for _, c := range e.candidates {
		if !c.isLeader() {
			continue
		}
		// The leadership of first may have ended since the loop has checked it.
		if first != nil && first.isLeader() && !e.reported {
			e.reported = true
			e.Errorf("%s (token %d) and %s (token %d) are leaders at the same time",
				first.name, first.leadership.Token(), c.name, c.leadership.Token())
		}
		first = c
	}
}

// awaitLeader waits for a leader that is not one of the excluded candidates.
func (e *election) awaitLeader(excluded ...*candidate) *candidate {
	e.Helper()
	var leader *candidate
	e.await("there is a leader", func() bool {
		for _, c := range e.candidates {
			if c.isLeader() {
				leader = c
				if slices.Contains(excluded, c) {
					leader = nil
				}
			}
		}
		return leader != nil
	})
	return leader
}

// await waits until condition, which is called with mu held, returns true.
func (e *election) await(what string, condition func() bool) {
	e.Helper()
	timeout := time.After(e.waitLimit())
	for {
		e.mu.Lock()
		ok, changed := condition(), e.changed
		e.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-time.After(5 * time.Millisecond):
		case <-timeout:
			e.mu.Lock()
			defer e.mu.Unlock()
			statuses := ""
			for _, c := range e.candidates {
				statuses += fmt.Sprintf("\n\t%s: %v", c.name, c.status)
			}
			e.Fatalf("waited too long until %s%s", what, statuses)
		}
	}
}

// waitLimit returns the time for which a case waits for a state of the election. The wait ends as soon as
// the state is reached, so a long limit costs time only if there is an error.
func (e *election) waitLimit() time.Duration {
	return 6*e.suite.backend.Patience + 20*e.suite.backend.Heartbeat
}

// stableHeartbeats is for how many heartbeats a candidate must lead to count as a stable leader. This is longer than a
// lease, so the store has acknowledged heartbeats.
const stableHeartbeats = 5

// awaitStableLeader waits until a candidate has been leader for five heartbeats, and returns it. A
// leader may lose its leadership earlier if the machine is busy: then the wait starts again with the
// next leader.
func (e *election) awaitStableLeader() *candidate {
	e.Helper()
	stable := stableHeartbeats * e.suite.backend.Heartbeat
	timeout := time.After(e.waitLimit())
	for {
		c := e.awaitLeader()
		e.mu.Lock()
		l := c.leadership
		e.mu.Unlock()
		select {
		case <-l.Done():
		case <-timeout:
			e.Fatalf("no candidate was leader for %v: the leadership of the last one, %s, ended with: %v", stable, c.name, l.Err())
		case <-time.After(stable):
			if l.Err() == nil {
				return c
			}
		}
	}
}

// tokenOf returns the token of the last leadership of c.
func (e *election) tokenOf(c *candidate) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return c.leadership.Token()
}

// greatestToken returns the greatest token of all leaderships.
func (e *election) greatestToken() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastToken
}

func (e *election) resign(c *candidate) {
	e.Helper()
	electiontest.Confirm(e, c.Resign)
}
