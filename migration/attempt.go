package migration

import (
	"context"
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// phase is how far an attempt has come.
type phase int

const (
	// waiting is the phase in which the candidate does not lead the old election. It is not a
	// candidate of the new one: a leader of the new election that waited for the old one would wait
	// forever for a leader of the old election that waits for the new one.
	waiting phase = iota
	// confirming is the phase in which it leads the old election and is a candidate of the new one.
	confirming
	// leading is the phase in which it leads both.
	leading
)

// next returns the phase that follows if no leadership was lost.
func (p phase) next(inOld, inNew leaderelection.Role) phase {
	switch {
	case p == waiting && inOld == leaderelection.Leader:
		return confirming
	case p == confirming && inNew == leaderelection.Leader:
		return leading
	}
	return p
}

var errNotJoined = errors.New("migration: new election: the candidate has not become the leader within the limits of WithJoinLimit")

// attempt is one attempt to lead both elections. It ends when either leadership is lost. It belongs to the
// goroutine of ElectLeader.
type attempt struct {
	*Candidate
	phase    phase
	old, new *side
	// joinTimer fires if the candidate has not joined the new election in time. It is nil before the
	// candidate tries to join.
	joinTimer *time.Timer
	joined    bool // the new election, in which the candidate waits for its turn
}

// run receives the statuses of both candidates until a leadership is lost, or the candidacy is over. It
// returns the reason.
func (a *attempt) run(ctx context.Context) (reason error, over bool) {
	a.old.start()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx), true
		case s, open := <-a.old.statuses():
			reason, over = a.receive(a.old, s, open)
		case s, open := <-a.new.statuses():
			reason, over = a.receive(a.new, s, open)
		case <-a.old.leadershipDone():
			return a.old.describe(a.old.status.Leadership.Err()), false
		case <-a.new.leadershipDone():
			return a.new.describe(a.new.status.Leadership.Err()), false
		case <-a.joinTimeout():
			return errNotJoined, false
		case <-a.old.requests():
			a.old.requested = nil
			a.request()
		case <-a.new.requests():
			a.new.requested = nil
			a.request()
		}
		if reason == nil {
			reason, over = a.advance(ctx)
		}
		if reason != nil {
			return reason, over
		}
	}
}

// receive stores the status of a side. It returns the reason if its candidacy is over or it has lost its
// leadership.
func (a *attempt) receive(s *side, status leaderelection.Status, open bool) (reason error, over bool) {
	switch {
	case !open:
		return s.describe(leaderelection.ErrResigned), true
	case status.Err != nil:
		return s.describe(status.Err), true
	}
	former := s.status.Leadership
	s.status = status
	if former != nil && former != status.Leadership {
		return s.describe(former.Err()), false
	}
	return nil, false
}

// advance begins the phase that follows from the roles of both sides. It returns the reason if a leadership was
// lost or the candidacy is over before that.
func (a *attempt) advance(ctx context.Context) (reason error, over bool) {
	former, next := a.phase, a.phase.next(a.old.role(), a.new.role())
	if next == leading {
		// The statuses may have been sent before this process was stopped for some time.
		for _, s := range []*side{a.old, a.new} {
			if err := s.status.Leadership.Err(); err != nil {
				return s.describe(err), false
			}
		}
	}
	a.phase = next
	if id := a.old.status.CandidateID; id != "" && id != a.ID() {
		a.candidacy.Join(id)
	}
	switch {
	case a.phase != leading:
		a.publish()
	case former != leading:
		a.lead(a.old.status.Leadership, a.new.status.Leadership)
	}
	if former == waiting && a.phase == confirming {
		return a.joinNew(ctx)
	}
	return nil, false
}

// publish publishes whom the candidate follows, and whether it is next, if that has changed or it has joined.
func (a *attempt) publish() {
	waits := a.old.status
	if a.new != nil {
		waits = a.new.status
	}
	current := a.candidacy.Current()
	if a.ID() != "" && (current.CandidateID != a.ID() || current.NowFollowing != waits.NowFollowing || current.Next != waits.Next) {
		a.candidacy.Publish(leaderelection.Status{NowFollowing: waits.NowFollowing, Next: waits.Next})
	}
}

// joinNew creates and starts the candidate of the new election. It returns the reason if a leadership was lost
// or the candidacy is over before that.
func (a *attempt) joinNew(ctx context.Context) (reason error, over bool) {
	l := a.old.status.Leadership
	a.joinTimer = time.NewTimer(a.options.joinLimit)
	creation, cancel := context.WithTimeoutCause(ctx, a.options.joinLimit, errNotJoined)
	defer cancel()
	defer context.AfterFunc(l.Context(), cancel)()
	s, err := newSide(creation, "new", a.newElection)
	switch {
	case ctx.Err() != nil:
		reason, over = context.Cause(ctx), true
	case l.Err() != nil:
		reason = a.old.describe(l.Err())
	case creation.Err() != nil:
		reason = context.Cause(creation)
	case errors.Is(err, leaderelection.ErrUnreachable):
		return err, false
	case err != nil:
		return err, true
	}
	if s != nil {
		a.new = s
		a.set(a.old, s)
		if reason == nil {
			s.start()
		}
	}
	return reason, over
}

// joinTimeout returns the channel of the timer while the candidate tries to confirm its leadership, or nil. When it
// has joined the new election, it has more time, because it waits for its turn.
func (a *attempt) joinTimeout() <-chan time.Time {
	if a.new == nil || a.phase != confirming {
		return nil
	}
	if !a.joined && a.new.status.CandidateID != "" {
		a.joined = true
		a.joinTimer.Reset(turnLimit * a.options.joinLimit)
	}
	return a.joinTimer.C
}

// turnLimit is how many times the join limit a candidate may wait for its turn in the new election.
const turnLimit = 6

// leave ends the leadership for a reason, and resigns from both elections. If the candidacy of a side has
// ended with an error before it resigned, leave returns that error.
func (a *attempt) leave(ctx context.Context, reason error, over bool) error {
	if a.phase == leading {
		a.candidacy.Revoke(reason)
		if over {
			a.candidacy.Retract(leaderelection.Status{})
		} else {
			a.candidacy.Publish(leaderelection.Status{})
		}
		_ = limit.Pause(ctx, a.options.grace) // time to stop before it resigns from the other election
	}
	if a.joinTimer != nil {
		a.joinTimer.Stop()
	}
	if err := a.resign(); err != nil && !over {
		a.options.log.Warn("resignation not confirmed", "err", err)
	}
	return errors.Join(a.old.ended(), a.new.ended())
}
