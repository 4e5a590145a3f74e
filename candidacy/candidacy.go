// Package candidacy implements what all kinds of elections have in common: the channels of statuses
// and events, the current leadership, and how a candidacy ends. It is for implementations of
// leaderelection.Candidate, which add only the algorithm:
//
//	type Election struct{ candidacy candidacy.Candidacy }
//
//	func (e *Election) ElectLeader() error { return e.candidacy.Run(e.run) }
//
//	// run joins the queue, calls Join, Publish, Lead, Suspend and Revoke, and returns the
//	// reason why the candidacy is over, at the latest when ctx is done.
//	func (e *Election) run(ctx context.Context) error
//
//	func (e *Election) Resign() error {
//		e.candidacy.Stop(leaderelection.ErrResigned)
//		<-e.candidacy.Done()
//		...
//	}
//
// Package electiontest tests such implementations.
package candidacy

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// New returns a Candidacy that has not started. It ends, as by Resign, when ctx is done. It logs
// each status and the end at level Info to log, or nothing if log is nil.
func New(ctx context.Context, log *slog.Logger) Candidacy {
	return connection.NewCandidacy(ctx, log).(Candidacy)
}

// NewLeadership returns a Leadership and a function that ends it with a reason. The function may be
// called repeatedly; only the first reason counts. deadline returns the time at which the lease
// currently expires. It is called often, from any goroutine, and must not call methods of the
// Leadership. If deadline is nil, or returns the zero time from the start, leadership is unlimited.
func NewLeadership(token int64, deadline func() time.Time) (*leaderelection.Leadership, context.CancelCauseFunc) {
	l, end := connection.NewLeadership(token, deadline)
	return l.(*leaderelection.Leadership), end
}

// Candidacy is one candidacy, from ElectLeader until it returns. Create it with [New]. Its methods
// may be called from any goroutine.
type Candidacy interface {
	// Run implements ElectLeader. It calls algorithm once and then ends the candidacy for the
	// reason that algorithm has returned. The context of algorithm is done after Stop; its cause
	// is the reason.
	//
	// Run returns the result of Finish, and leaderelection.ErrAlreadyStarted if it was called
	// before. If the candidacy was over before, Run does not call algorithm.
	Run(algorithm func(ctx context.Context) error) error

	// Context returns the context of the algorithm, which is done when the candidacy is stopped.
	Context() context.Context

	// Done returns a channel that is closed when the candidacy is over.
	Done() <-chan struct{}

	// ID implements Candidate.ID. It returns the ID that Join or SetID has set.
	ID() string

	// SetID sets the ID that statuses and events contain, if it is known before Join is called.
	SetID(id string)

	// Status implements Candidate.Status.
	Status() <-chan leaderelection.Status

	// Current implements Candidate.Current. A leader whose lease has expired by the clock is
	// reported as Suspended, even if the algorithm has not noticed it yet.
	Current() leaderelection.Status

	// Events implements Candidate.Events.
	Events() <-chan event.Event

	// Observed reports whether Events was called. An algorithm may omit calls of Report, and
	// what they cost, if it was not.
	Observed() bool

	// Report delivers e to the reader of Events. It sets e.Time, e.ID and e.Missed. It does not
	// block, and does nothing after the end or if Events was not called. It is for kinds of
	// events that the other methods do not report.
	Report(e event.Event)

	// Join sets the ID and reports event.Joined. Call it when the candidate has joined the
	// election, again for each session.
	Join(id string)

	// Vacated records that the candidate was notified at this moment that its predecessor has
	// left. If the candidate becomes leader without publishing another predecessor before,
	// event.HandOver is reported.
	Vacated()

	// SetFormerErr sets the FormerErr of the statuses that Lead publishes from now on.
	SetFormerErr(err error)

	// Publish delivers s to the reader of Status. It sets s.CandidateID and s.WasFollowing. It
	// does not block, and does nothing after the end.
	Publish(s leaderelection.Status)

	// Retract discards unread statuses, and makes s the current status without delivering it.
	// It is for the moment between the loss of a leadership and the next status.
	Retract(s leaderelection.Status)

	// Lead begins a leadership as NewLeadership does, and publishes it. It reports
	// event.Elected, or event.Resumed if the leadership with the same token was suspended. The
	// candidate must not be the leader already. If the candidacy is over, Lead returns a leadership
	// that is over.
	Lead(token int64, deadline func() time.Time) *leaderelection.Leadership

	// Leadership returns the current leadership, or nil between Revoke and Lead. Its lease may
	// have expired.
	Leadership() *leaderelection.Leadership

	// Suspend ends the current leadership for reason, if there is one, publishes a status with
	// Role Suspended, and reports event.Suspended. Lead with the same token resumes the
	// leadership, and Revoke ends it.
	Suspend(reason error)

	// Revoke ends the current or suspended leadership for reason, which closes its Done, and
	// reports event.Lost. It returns true if the leadership was not suspended. Then the caller
	// publishes or retracts a status.
	Revoke(reason error) bool

	// Stop ends the context of the algorithm for a reason, unless that was done before. If Run
	// was not called, the candidacy is over when Stop returns.
	Stop(reason error)

	// Finish ends the candidacy: it revokes the leadership, delivers the final status with
	// reason, reports event.Ended, and closes the channels of Status and Events. If reason is
	// leaderelection.ErrResigned, there is no final status. Only the first call has an effect;
	// an algorithm may call Finish before it returns. Finish returns the reason of the first
	// call, or nil if that is ErrResigned.
	Finish(reason error) error

	// End implements EndElection. It calls end in a goroutine, and returns its error if it
	// fails. Otherwise it stops the candidacy for the reason leaderelection.ErrElectionOver and
	// waits until it is over. If end has not returned within 1.5 s, End does the same and
	// returns an error that begins with operation and wraps leaderelection.ErrUnconfirmed; end
	// continues, and another call of End waits for it.
	End(operation string, end func() error) error
}
