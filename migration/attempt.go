package migration

import (
	"context"
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// phase is the progress of an attempt.
type phase int

const (
	// waiting is the phase in which the candidate does not lead the old election. It must not be a candidate
	// of the new one: if it led the new election and waited for the old one, the leader of the old election
	// would wait for the new one, and both would wait forever.
	waiting phase = iota
	// confirming is the phase in which the candidate leads the old election and waits for the leadership
	// of the new one.
	confirming
	// leading is the phase in which the candidate leads both elections.
	leading
)

// nextPhase returns the next phase, if no leadership was lost. inOld and inNew are the roles in the two elections.
func (p phase) nextPhase(inOld, inNew leaderelection.Role) phase {
	switch {
	case p == waiting && inOld == leaderelection.Leader:
		return confirming
	case p == confirming && inNew == leaderelection.Leader:
		return leading
	}
	return p
}

var errNotJoined = errors.New("migration: new election: the candidate has not become the leader within the limits of WithJoinLimit")

// attempt is one attempt to lead both elections, which ends when either leadership is lost. Only the
// goroutine of ElectLeader uses it.
type attempt struct {
	*Candidate
	phase    phase
	old, new *side
	// joinTimer fires if the candidate has not joined the new election in time. It is nil before the
	// candidate tries to join.
	joinTimer *time.Timer
	joined    bool // the candidate has joined the new election, and waits for its turn there
}

// run receives the statuses of both candidates until a leadership is lost, or the candidacy is over. It
// returns the reason.
func (a *attempt) run(ctx context.Context) (reason error, over bool) {
	a.start(a.old)
	listening := a.listening
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx), true
		case s, open := <-a.old.statusChannel():
			reason, over = a.receive(a.old, s, open)
		case s, open := <-a.new.statusChannel():
			reason, over = a.receive(a.new, s, open)
		case <-a.old.leadershipDone():
			return a.old.describe(a.old.status.Leadership.Err()), false
		case <-a.new.leadershipDone():
			return a.new.describe(a.new.status.Leadership.Err()), false
		case <-a.joinTimeout():
			return errNotJoined, false
		case <-listening:
			listening = nil
			a.old.listen()
			a.new.listen()
		case <-a.old.requestChannel():
			a.old.requested = nil
			a.request()
		case <-a.new.requestChannel():
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

// start starts the candidacy of one side. If the program has called ResignRequested, the side listens to
// requests to resign from the beginning.
func (a *attempt) start(s *side) {
	select {
	case <-a.listening:
		s.listen()
	default:
	}
	s.start()
}

// receive stores a status of one side; open is false if its channel is closed. It returns the reason if the
// candidacy of that side is over or its leadership is lost.
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

// advance enters the phase that the roles of both sides require. It returns the reason if a leadership was
// lost or the candidacy is over first.
func (a *attempt) advance(ctx context.Context) (reason error, over bool) {
	former, next := a.phase, a.phase.nextPhase(a.old.currentRole(), a.new.currentRole())
	if next == leading {
		// Check both leaderships again: the statuses may be outdated, because this process may have been suspended
		// in the meantime.
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

// publish publishes a status if the predecessor or Next has changed, or if the candidate has just joined.
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

// joinNew creates and starts the candidate of the new election. It returns the reason if a leadership was
// lost or the candidacy is over first.
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
			a.start(s)
		}
	}
	return reason, over
}

// joinTimeout returns the channel of joinTimer while the candidate waits for the leadership of the new
// election, and nil otherwise. After the candidate has joined the new election, the limit is longer,
// because the candidate waits for its turn.
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

// turnLimit limits how long a candidate may wait for its turn in the new election. It is a multiple of the
// join limit.
const turnLimit = 6

// leave ends the leadership for a reason, and resigns from both elections. If the candidacy of one side had
// ended with an error before that, leave returns that error.
func (a *attempt) leave(ctx context.Context, reason error, over bool) error {
	if a.phase == leading {
		a.candidacy.Revoke(reason)
		if over {
			a.candidacy.Retract(leaderelection.Status{})
		} else {
			a.candidacy.Publish(leaderelection.Status{})
		}
		// Give the program time to stop before another candidate can lead the other election.
		_ = limit.Pause(ctx, a.options.grace)
	}
	if a.joinTimer != nil {
		a.joinTimer.Stop()
	}
	if err := a.resign(); err != nil && !over {
		a.options.log.Warn("resignation not confirmed", "err", err)
	}
	return errors.Join(a.old.endError(), a.new.endError())
}
