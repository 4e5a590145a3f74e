package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// errTwoLeaders reports a violation of the guarantee that the demo demonstrates.
var errTwoLeaders = errors.New("two leaders at the same time")

// participantState is the last known state of a participant.
type participantState struct {
	name       string
	election   *leaderelection.Election   // the current candidacy
	status     leaderelection.Status      // the last status
	since      time.Time                  // when the status was received; zero before the first one
	absence    string                     // why the participant is not a candidate; "" if it is one
	leadership *leaderelection.Leadership // the last leadership of the candidacy
}

func (p participantState) isLeader() bool {
	return p.absence == "" && p.status.Role == leaderelection.Leader
}

// monitor records and prints the statuses of all participants, and checks that there is never more than
// one leader. It is safe for concurrent use.
type monitor struct {
	mu       sync.Mutex
	screen   *screen
	states   []*participantState
	names    map[string]string // names of participants by candidate ID
	start    time.Time         // of the current step
	observed leaderelection.Observation
	ending   bool          // candidacies may end
	problem  error         // the first violation or unexpected end
	changed  chan struct{} // is closed, and replaced, after each change
}

func newMonitor(out *screen, names ...string) *monitor {
	m := &monitor{screen: out, names: map[string]string{}, start: time.Now(), changed: make(chan struct{})}
	for _, name := range names {
		m.states = append(m.states, &participantState{name: name, absence: "not started"})
	}
	return m
}

// find returns the state of a participant. The caller must hold mu.
func (m *monitor) find(name string) *participantState {
	for _, p := range m.states {
		if p.name == name {
			return p
		}
	}
	panic("no participant " + name)
}

// addCandidacy records a new candidacy.
func (m *monitor) addCandidacy(name string, election *leaderelection.Election) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*m.find(name) = participantState{name: name, election: election}
	m.notify()
}

// addStatus records a status that a participant has received.
func (m *monitor) addStatus(name string, election *leaderelection.Election, s leaderelection.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.find(name)
	if p.election != election || p.absence != "" {
		return // the participant has crashed
	}
	if s.CandidateID != "" {
		m.names[s.CandidateID] = name
	}
	if s.Leadership != nil {
		m.checkLeadership(name, s.Leadership)
		p.leadership = s.Leadership
	}
	if s.Err != nil && !m.ending {
		m.problem = fmt.Errorf("the candidacy of %s has ended: %w", name, s.Err)
	}
	p.status, p.since = s, time.Now()
	// The demo closes its connections at the end; that is not printed.
	if !m.ending || !errors.Is(s.Err, leaderelection.ErrConnClosed) {
		m.printLine(p.since, name, m.describe(p), roleStyle(s))
	}
	m.notify()
}

// checkLeadership checks that other leaderships are over and have smaller tokens. The caller must hold mu.
func (m *monitor) checkLeadership(name string, l *leaderelection.Leadership) {
	for _, p := range m.states {
		switch {
		case p.name == name || p.leadership == nil:
		case p.absence == "" && p.leadership.Err() == nil:
			m.problem = fmt.Errorf("%w: %s and %s", errTwoLeaders, p.name, name)
		case p.leadership.Token() >= l.Token():
			m.problem = fmt.Errorf("%s has token %d, and %s had %d before", name, l.Token(), p.name, p.leadership.Token())
		}
	}
}

// endCandidacy records that the Status channel of a candidacy was closed.
func (m *monitor) endCandidacy(name string, election *leaderelection.Election) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.find(name)
	if p.election != election || p.absence != "" {
		return
	}
	switch err := p.status.Err; {
	case err == nil:
		p.absence = "has resigned"
	case errors.Is(err, leaderelection.ErrElectionOver):
		p.absence = "has ended: the election is over"
	default:
		p.absence = "has ended: " + err.Error()
	}
	m.notify()
}

// markCrashed makes the monitor ignore later statuses of a participant.
func (m *monitor) markCrashed(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.find(name).absence = "crashed"
	m.printLine(time.Now(), name, "crashes", red)
	m.notify()
}

// setObservation records what the observer has received.
func (m *monitor) setObservation(o leaderelection.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observed = o
	m.notify()
}

// printEvent prints an event of a participant and returns its time.
func (m *monitor) printEvent(name, text string, s style) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.printLine(now, name, text, s)
	return now
}

// startClock sets the origin of the printed times to the current time, and returns it.
func (m *monitor) startClock() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.start = time.Now()
	return m.start
}

// allowEnd allows candidacies to end.
func (m *monitor) allowEnd() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ending = true
}

// state returns the state of a participant.
func (m *monitor) state(name string) participantState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.find(name)
}

// awaitState waits until the state of a participant satisfies a condition, at most for limit. action
// completes the error message "name did not ...".
func (m *monitor) awaitState(ctx context.Context, limit time.Duration, name, action string, condition func(participantState) bool) (p participantState, err error) {
	err = m.await(ctx, limit, name+" did not "+action, func() bool {
		p = *m.find(name)
		return condition(p)
	})
	return p, err
}

// awaitObservation waits until the observation satisfies a condition, at most for limit.
func (m *monitor) awaitObservation(ctx context.Context, limit time.Duration, condition func(leaderelection.Observation) bool) error {
	return m.await(ctx, limit, "the observer did not see it", func() bool { return condition(m.observed) })
}

// await waits for a condition, which is called with mu held, at most for limit.
func (m *monitor) await(ctx context.Context, limit time.Duration, complaint string, condition func() bool) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		m.mu.Lock()
		satisfied, problem, changed := condition(), m.problem, m.changed
		m.mu.Unlock()
		switch {
		case problem != nil:
			return problem
		case satisfied:
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return fmt.Errorf("%s within %v", complaint, limit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// notify wakes the calls of await and repaints the table. The caller must hold mu.
func (m *monitor) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
	m.screen.paint(m.table(time.Now()))
}
