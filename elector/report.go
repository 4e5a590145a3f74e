package elector

import (
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// State is the state of an Elector.
type State string

const (
	// StateNotLeader is the state while the program does not act as the leader: before Run,
	// as a follower, while Begin runs, after End, and after Run.
	StateNotLeader State = "NOTLEADER"
	// StateLeader is the state from the success of Begin until the success of End.
	StateLeader State = "LEADER"
	// StateError is the state in which the Elector waits after an error before it joins
	// again.
	StateError State = "ERROR"
)

// Report describes the state of an Elector at one time.
type Report struct {
	// State is the state of the Elector.
	State State
	// Since is when the state was entered. It is zero before Run.
	Since time.Time
	// Candidate is the newest status of the candidate that NewCandidate has returned last, also
	// after the candidate has resigned. It is zero before that, from each later call of
	// NewCandidate until it returns a candidate, and after it has failed. Its Role can be Leader
	// while State is not StateLeader, for instance while Begin is running.
	Candidate leaderelection.Status
	// Err is the error that led to StateError, or, after Run, the error that Run returned.
	Err error
}

// orInitial returns r, or the report of an Elector whose Run was not called yet if r is zero.
func (r Report) orInitial() Report {
	if r.State == "" {
		r.State = StateNotLeader
	}
	return r
}

// Current returns the current state. It may be called from any goroutine at any time, and
// does not wait for handlers. To find out whether this program is the leader, check the Err
// method of Candidate.Leadership as well: State changes only after End has returned.
func (e *Elector) Current() Report {
	e.mu.Lock()
	report, candidate := e.report.orInitial(), e.candidate
	e.mu.Unlock()
	if candidate != nil {
		report.Candidate = candidate.Current()
	}
	return report
}

// Reports returns a channel of state changes. It delivers the current Report immediately,
// and then a Report after each change of State or Err and after each status of the
// candidate. A status that arrives while a handler runs is reported after the handler has
// returned. Consecutive reports can be equal. Sending never blocks the Elector: a slow
// reader receives only the newest Report. The last Report contains the error that Run
// returned; then the channel is closed.
//
// Every call returns the same channel, which is meant for one reader. Reports may be called
// from any goroutine, before, during and after Run, and does not block. A Report may be out
// of date when it is received: to find out whether this program is the leader, call the Err
// method of Candidate.Leadership.
func (e *Elector) Reports() <-chan Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reports == nil {
		e.reports = make(chan Report, 1)
		e.reports <- e.sent.orInitial()
		select {
		case <-e.returned:
			close(e.reports)
		default: // Run was not called, or has not returned
		}
	}
	return e.reports
}

// sendReport sends the current report to the reader of Reports. Only the goroutine of Run calls sendReport.
func (e *Elector) sendReport() {
	report := e.Current() // Current calls the candidate, so mu must not be held
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent = report
	if e.reports != nil {
		limit.SendNewest(e.reports, report)
	}
}

// publishReport stores the state, the candidate and an error, so that Current and Reports return them.
func (l *loop) publishReport(err error) {
	e := l.elector
	defer e.sendReport()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.report.State != l.state {
		e.report.Since = time.Now()
	}
	e.report.State, e.report.Err = l.state, err
	e.candidate = nil
	if l.candidacy != nil {
		e.candidate = l.candidacy.candidate
	}
}

// setState changes the state, logs the change and publishes it.
func (l *loop) setState(s State, err error) {
	if l.state != s {
		log := l.log.With("state", s)
		if l.state != "" {
			log = log.With("from", l.state)
		}
		log.Debug("state changed")
	}
	l.state = s
	l.publishReport(err)
}
