package elector

import (
	"log/slog"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// State is what an Elector is at a moment, and what its backend tells it.
type State string

const (
	// StateNotLeader does not act. It is the state before, and after, everything else,
	// and while Begin runs.
	StateNotLeader State = "NOTLEADER"
	// StateLeader acts: Begin has succeeded, and End has not yet.
	StateLeader State = "LEADER"
	// StateError waits before it takes part again.
	StateError State = "ERROR"
)

// Report is an Elector's situation at a moment.
type Report struct {
	State State
	Since time.Time // when the state was entered; zero before Run
	// Candidate is the newest status of the candidate, of the last one while there is
	// none. It can be the leader while State is not StateLeader: Begin is running then.
	Candidate leaderelection.Status
	// Err is what has led to StateError, and after Run what Run has returned.
	Err error
}

// orInitial is the report before Run for the zero value.
func (r Report) orInitial() Report {
	if r.State == "" {
		r.State = StateNotLeader
	}
	return r
}

// Current returns the situation. It may be called from any goroutine, at any time, and
// does not wait for handlers. Whoever needs to know whether this program leads looks at
// Candidate.Leadership's Err as well: State follows only when End has returned.
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
