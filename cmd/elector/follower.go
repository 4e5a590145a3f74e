package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/elector"
)

const (
	// watchPause is the time between a failed observation of the leader and the next attempt.
	watchPause = time.Second
	// leaderWait is how long the follower command waits for the name of the leader.
	leaderWait = 3 * time.Second
)

// leaderView contains the leader that this run has last observed.
type leaderView struct {
	mu       sync.Mutex
	leader   *candidateInfo // the last observed leader; nil if it is unknown
	changes  []leaderChange // the last changes of the leader, at most maxChanges
	onChange func()         // called after each observation; it may be nil
}

// maxChanges is the number of changes of the leader that a leaderView remembers.
const maxChanges = 20

// leaderChange records a change of the observed leader.
type leaderChange struct {
	At    time.Time
	Name  string // the name of the leader, or a text for the reader if there is no leader
	Token int64  // the token of the leader; 0 if there is no leader or it is unknown
}

func (v *leaderView) set(leader *candidateInfo) {
	v.mu.Lock()
	change := leaderChange{At: time.Now()}
	if leader != nil {
		change.Name, change.Token = shortenCell(leader.Name), leader.Token
	}
	if before := v.leader; before == nil && leader != nil || before != nil && before.Token != change.Token {
		v.changes = append(v.changes, change)
		v.changes = v.changes[max(0, len(v.changes)-maxChanges):]
	}
	v.leader = leader
	v.mu.Unlock()
	if v.onChange != nil {
		v.onChange()
	}
}

func (v *leaderView) get() *candidateInfo {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.leader
}

// lastChanges returns the last changes of the leader, the newest first.
func (v *leaderView) lastChanges() []leaderChange {
	v.mu.Lock()
	defer v.mu.Unlock()
	changes := slices.Clone(v.changes)
	slices.Reverse(changes)
	return changes
}

// watchLeader updates the leaderView of the run until ctx is done.
func (r *runCommand) watchLeader(ctx context.Context, watch func(context.Context, string) (<-chan observation, error)) {
	var leaders succession
	for ctx.Err() == nil {
		observations, err := watch(ctx, r.settings.election)
		if err == nil {
			for o := range observations {
				if o.err == nil {
					leaders.observe(o.leader, time.Now())
				}
				r.leader.set(o.leader)
				err = o.err
			}
		}
		r.leader.set(nil)
		leaders.recordInterruption()
		r.settings.log.Debug("leader unknown", "err", err)
		_ = limit.Pause(ctx, watchPause) // observe again after a pause, because the election may not exist yet
	}
}

// follower runs the follower command of --follower-command. All methods of a nil follower do nothing.
type follower struct {
	run     *runCommand
	elector *elector.Elector
	// observed reports whether the backend reports the leader, and the predecessors of a candidate in the queue.
	observed bool
	wake     chan struct{} // receives an element after each report of the leader or of the Elector

	mu      sync.Mutex
	leading bool   // whether this instance leads: from the start of the begin command until the end command has succeeded or the next candidacy starts
	ran     bool   // whether the command has run since this instance began to follow
	token   int64  // the fencing token of the leader for which the command has run; 0 if the leader was unknown
	stop    func() // stops the command and waits until it has exited; nil if the command does not run
}

// newFollower returns the follower of a run, or nil if there is no follower command.
func (r *runCommand) newFollower(e *elector.Elector, observed bool) *follower {
	if r.followerCommand == "" {
		return nil
	}
	f := &follower{run: r, elector: e, observed: observed, wake: make(chan struct{}, 1)}
	r.leader.onChange = f.notify
	r.onReport = append(r.onReport, func(elector.Report) { f.notify() })
	return f
}

func (f *follower) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// beginLeadership stops the follower command, and returns after the command has exited.
func (f *follower) beginLeadership() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.leading, f.ran = true, false
	stop := f.stop
	f.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// endLeadership allows the follower command to run again.
func (f *follower) endLeadership() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.leading = false
	f.mu.Unlock()
	f.notify()
}

// runCommands runs the follower command for each leader until ctx is done.
func (f *follower) runCommands(ctx context.Context) {
	var unknownSince time.Time // the time when this instance began to follow an unknown leader
	for ctx.Err() == nil {
		following, leader := f.state()
		var wait <-chan time.Time
		switch {
		case !following:
			unknownSince = time.Time{}
		case leader != nil || !f.observed:
			unknownSince = time.Time{}
			f.runFor(ctx, leader)
		case unknownSince.IsZero():
			unknownSince = time.Now()
			wait = time.After(leaderWait)
		default:
			if left := leaderWait - time.Since(unknownSince); left > 0 {
				wait = time.After(left)
			} else {
				f.runFor(ctx, nil)
			}
		}
		select {
		case <-f.wake:
		case <-wait:
		case <-ctx.Done():
		}
	}
}

// state reports whether this instance follows, and the leader, which is nil if it is unknown. If this instance does
// not follow, state also records that the command must run when the instance follows again.
func (f *follower) state() (following bool, leader *candidateInfo) {
	report := f.elector.Current()
	c := report.Candidate
	f.mu.Lock()
	defer f.mu.Unlock()
	following = !f.leading && report.State == elector.StateNotLeader && report.Err == nil &&
		c.Err == nil && c.Role == leaderelection.Follower && c.CandidateID != "" &&
		(c.NowFollowing != "" || !f.observed)
	if !following {
		f.ran = false
		return false, nil
	}
	if leader = f.run.leader.get(); leader != nil && leader.ID == c.CandidateID {
		leader = nil // the observed leader is this instance, which is about to be elected or has just lost the leadership
	}
	return true, leader
}

// runFor runs the follower command for a leader, unless the command has already run for this leader. leader is nil if
// it is unknown.
func (f *follower) runFor(ctx context.Context, leader *candidateInfo) {
	name, token := "", int64(0)
	if leader != nil {
		name, token = leader.Name, leader.Token
	}
	r := f.run
	ctx, cancel := context.WithTimeout(ctx, r.beginTimeout)
	defer cancel()
	f.mu.Lock()
	if f.leading || f.ran && (leader == nil || token == f.token) {
		f.mu.Unlock()
		return
	}
	done := make(chan struct{})
	f.ran, f.token = true, token
	f.stop = func() {
		cancel()
		<-done
	}
	f.mu.Unlock()
	err := r.runScript(ctx, "follower", r.followerCommand, nil, r.handlerEnvironment(roleFollower, leader, nil, nil))
	f.mu.Lock()
	f.stop = nil
	f.mu.Unlock()
	close(done)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		r.settings.log.Info("follower command was stopped", "cause", context.Cause(ctx), "err", err)
	default:
		r.settings.log.Warn("follower command failed", "err", fmt.Errorf("leader %q: %w", name, err))
	}
}
