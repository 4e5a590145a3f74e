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

// monitor records and prints the statuses of all participants, and checks that there is never more than
// one leader. It is safe for concurrent use.
type monitor struct {
	out          *output
	participants []*participant

	mu       sync.Mutex
	start    time.Time // the start of the current step
	observed leaderelection.Observation
	ending   bool          // whether candidacies may end: the last step has begun
	problem  error         // the first violation, or the first candidacy that has ended unexpectedly
	changed  chan struct{} // closed and replaced after each change
}

// updateState calls f, which changes the state, with mu held, and then wakes the calls of await.
func (m *monitor) updateState(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.changed)
	m.changed = make(chan struct{})
}

// startClock sets the origin of the printed times to the current time, and returns that time.
func (m *monitor) startClock() (now time.Time) {
	m.updateState(func() {
		now = time.Now()
		m.start = now
	})
	return now
}

// allowEnd makes addStatus accept that a candidacy ends, which is a problem before the last step.
func (m *monitor) allowEnd() { m.updateState(func() { m.ending = true }) }

// addCandidacy records a new candidacy.
func (m *monitor) addCandidacy(p *participant, election *leaderelection.Election) {
	m.updateState(func() {
		p.election, p.status, p.since = election, leaderelection.Status{}, time.Time{}
		p.absence, p.leadership = "", nil
	})
}

// addStatus records a status that a participant has received.
func (m *monitor) addStatus(p *participant, election *leaderelection.Election, s leaderelection.Status) {
	m.updateState(func() {
		if p.election != election || p.absence != "" {
			return // the participant has crashed: it cannot receive the status
		}
		if s.Leadership != nil {
			m.checkLeadership(p, s.Leadership)
			p.leadership = s.Leadership
		}
		if s.Err != nil && !m.ending {
			m.problem = fmt.Errorf("the candidacy of %s has ended: %w", p.name, s.Err)
		}
		p.status, p.since = s, time.Now()
		// Before it exits, the demo closes the connections of the participants, and does not print
		// that their candidacies end.
		if !m.ending || !errors.Is(s.Err, leaderelection.ErrConnClosed) {
			m.printEvent(p, p.describe(), p.style())
		}
	})
}

// checkLeadership checks that other leaderships are over and have smaller tokens. The caller must hold mu.
func (m *monitor) checkLeadership(leader *participant, l *leaderelection.Leadership) {
	for _, p := range m.participants {
		switch {
		case p == leader || p.leadership == nil:
		case p.absence == "" && p.leadership.Err() == nil:
			m.problem = fmt.Errorf("%w: %s and %s", errTwoLeaders, p.name, leader.name)
		case p.leadership.Token() >= l.Token():
			m.problem = fmt.Errorf("the token %d of %s is not greater than the token %d that %s had before", l.Token(), leader.name, p.leadership.Token(), p.name)
		}
	}
}

// endCandidacy records that the Status channel of a candidacy was closed.
func (m *monitor) endCandidacy(p *participant, election *leaderelection.Election) {
	m.updateState(func() {
		switch err := p.status.Err; {
		case p.election != election || p.absence != "": // the participant has crashed, or has begun another candidacy
		case err == nil:
			p.absence = "has resigned"
		case errors.Is(err, leaderelection.ErrElectionOver):
			p.absence = "has ended: the election is over"
		default:
			p.absence = "has ended: " + err.Error()
		}
	})
}

// addEvent prints an event of a participant, and wakes the calls of await.
func (m *monitor) addEvent(p *participant, text string, s style) {
	m.updateState(func() { m.printEvent(p, text, s) })
}

// printEvent prints an event with the time since the start of the step. The caller must hold mu.
func (m *monitor) printEvent(p *participant, text string, s style) {
	m.out.print(line{fmt.Sprintf("   %10s  %s  %s", "+"+millis(time.Since(m.start)), p.name, text), s})
}

// printTable prints the states of the participants and of the observer.
func (m *monitor) printTable() {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := []line{{}}
	for _, p := range m.participants {
		lines = append(lines, line{fmt.Sprintf("   %s  %s", p.name, p.describe()), p.style()})
	}
	observed := "no leader"
	switch o := m.observed; {
	case errors.Is(o.Err, leaderelection.ErrElectionOver):
		observed = "the election is over"
	case o.Err != nil:
		observed = o.Err.Error()
	case o.Leader != nil:
		observed = fmt.Sprintf("%s leads, token %d", o.Leader.Name, o.Leader.Token)
	}
	m.out.print(append(lines, line{"   An observer sees: " + observed, dim})...)
}

// await waits until condition, which is called with mu held, returns true. After limit it returns an
// error that begins with complaint.
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
