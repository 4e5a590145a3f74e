package elector

import (
	"log/slog"
	"time"

	"github.com/go-leaderelection/leaderelection"
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
	// Candidate is the newest status of the candidate, or of the last candidate while there
	// is none. Its Role can be Leader while State is not StateLeader, for instance while
	// Begin is running.
	Candidate leaderelection.Status
	// Err is the error that led to StateError, or, after Run, the error that Run returned.
	Err error
}

// orInitial is the report before Run for the zero value.
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
	report, c := e.report.orInitial(), e.c
	e.mu.Unlock()
	if c != nil {
		report.Candidate = c.Current()
	}
	return report
}

// publish makes the state what Current reports.
func (r *run) publish(err error) {
	e := r.elector
	defer e.tell()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.report.State != r.state {
		e.report.Since = time.Now()
	}
	e.report.State, e.report.Err = r.state, err
	e.c = nil
	if r.c != nil {
		e.c = r.c.Candidate
	}
}

// enter changes the state.
func (r *run) enter(s State, err error) {
	if r.state != s {
		level := slog.LevelDebug
		if s == StateError {
			level = slog.LevelInfo
		}
		r.log.Log(r.ctx, level, "state", "from", r.state, "to", s, "err", err)
	}
	r.state = s
	r.publish(err)
}
