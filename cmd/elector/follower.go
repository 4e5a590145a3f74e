package main

// The observation of the leader during a run, and --follower-command.

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
)

const (
	watchPause = time.Second // after an observation has failed
	// leaderWait is how long the follower command waits for the leader's name.
	leaderWait = 3 * time.Second
)

// leaderView is the leader as this run has last observed it.
type leaderView struct {
	mu      sync.Mutex
	leader  *place // nil if it is not known
	changed func() // called after each observation; nil for nothing
}

func (v *leaderView) set(leader *place) {
	v.mu.Lock()
	v.leader = leader
	v.mu.Unlock()
	if v.changed != nil {
		v.changed()
	}
}

func (v *leaderView) get() *place {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.leader
}

// watchLeader keeps the leaderView up to date until ctx is done.
func (r *runner) watchLeader(ctx context.Context, watch func(context.Context) (<-chan observation, error)) {
	var leaders succession
	for ctx.Err() == nil {
		observations, err := watch(ctx)
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
		leaders.interrupt()
		r.log.Debug("leader unknown", "err", err)
		select {
		case <-time.After(watchPause): // the election may not exist yet
		case <-ctx.Done():
		}
	}
}

// follower runs the follower command of a run. A nil follower does nothing.
type follower struct {
	*runner
	elector  *elector.Elector
	observed bool          // the backend reports the leader, and predecessors in the queue
	wake     chan struct{} // has an element after a change

	mu      sync.Mutex
	leading bool   // from the call of begin until end has succeeded or the next candidacy starts
	ran     bool   // the command was run since this instance follows
	token   int64  // of the leader for which it was run, 0 if it was not known
	stop    func() // stops the command and waits for its end; nil if it does not run
}

// newFollower returns nil without a follower command.
func (r *runner) newFollower(e *elector.Elector, observed bool) *follower {
	if r.followerCommand == "" {
		return nil
	}
	f := &follower{runner: r, elector: e, observed: observed, wake: make(chan struct{}, 1)}
	r.leader.changed = f.notify
	r.onReport = append(r.onReport, func(elector.Report) { f.notify() })
	return f
}

func (f *follower) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// lead notes that a leadership begins, and returns after the command has ended.
func (f *follower) lead() {
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

// follow notes that no leadership is in use.
func (f *follower) follow() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.leading = false
	f.mu.Unlock()
	f.notify()
}

// run runs the command whenever it is due, until ctx is done.
func (f *follower) run(ctx context.Context) {
	var unknown time.Time // since when this instance follows without knowing the leader
	for ctx.Err() == nil {
		following, leader := f.state()
		var wait <-chan time.Time
		switch {
		case !following:
			unknown = time.Time{}
		case leader != nil || !f.observed:
			unknown = time.Time{}
			f.runFor(ctx, leader)
		case unknown.IsZero():
			unknown = time.Now()
			wait = time.After(leaderWait)
		default:
			if left := leaderWait - time.Since(unknown); left > 0 {
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

// state reports whether this instance is known to follow, and the leader, nil if it is not
// known. If it does not follow, the command is due again when it follows.
func (f *follower) state() (following bool, leader *place) {
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
	if leader = f.leader.get(); leader != nil && leader.ID == c.CandidateID {
		leader = nil // this instance is about to be elected, or has just lost the leadership
	}
	return true, leader
}

// runFor runs the command for a leader, nil if it is not known, unless it was run for it.
func (f *follower) runFor(ctx context.Context, leader *place) {
	name, token := "", int64(0)
	if leader != nil {
		name, token = leader.Name, leader.Token
	}
	ctx, cancel := context.WithTimeout(ctx, f.beginTimeout)
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
	err := f.shell(ctx, "follower", f.followerCommand, nil, f.environment(roleFollower, leader, nil, nil))
	f.mu.Lock()
	f.stop = nil
	f.mu.Unlock()
	close(done)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		f.log.Info("follower command was stopped", "cause", context.Cause(ctx), "err", err)
	default:
		f.log.Warn("follower command failed", "err", fmt.Errorf("leader %q: %w", name, err))
	}
}
