package raftlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
	"github.com/go-leaderelection/leaderelection/event"
)

// Election is a candidate in an election that is kept in the log. It implements
// [leaderelection.Candidate]. Create it with [NewElection]. Its methods may be called from
// any goroutine.
//
// Candidates are queued in the order of arrival, which the log determines. The first
// candidate is the leader while its peer holds a lease, which the peer renews from the
// leader of the log, which in turn contacts a majority (docs/raftlog.md). If a peer does
// not respond for an election timeout, its candidates are removed from their elections.
// They rejoin, at the back of the queue, when the peer responds again.
type Election struct {
	node *Node
	name string
	opts options

	candidacy   candidacy.Candidacy
	queue       atomic.Pointer[publishedQueue]
	ended       atomic.Bool   // the election has ended while the candidate was in the queue
	changed     chan struct{} // contains a token if queue, ended or the lease has changed
	unconfirmed *campaign     // the campaign if its resignation was not confirmed, or nil; set before the candidacy is over

	mu              sync.Mutex
	resignRequested chan struct{} // the channel that ResignRequested returns; nil before its first call
	resignRequests  int           // the number of calls of RequestResign in progress
}

var _ leaderelection.Candidate = (*Election)(nil)

// Option configures [NewElection]. [DeleteElection] and [RestartElection] use only the option [WithContext].
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	ctx        context.Context
	clientName string
	value      string
	guard      time.Duration
}

// WithName sets the name that observers see, of at most 1 KiB of UTF-8 without
// control characters.
func WithName(name string) Option { return optionFunc(func(o *options) { o.clientName = name }) }

// WithValue sets a text that the candidate advertises, for instance the address of its
// service. Observers can read it as CandidateInfo.Value. The name and the value together
// must have at most 1023 bytes of UTF-8, and the value no null character.
func WithValue(value string) Option { return optionFunc(func(o *options) { o.value = value }) }

// WithStopGuard ends a leadership the given time before another candidate could become
// leader, in addition to the margin for clocks, to give the program time to stop. It must
// be between 0, the default, and a quarter of Config.ElectionTimeout.
func WithStopGuard(d time.Duration) Option { return optionFunc(func(o *options) { o.guard = d }) }

// WithContext ends the candidacy, as Resign does, when ctx is done, and limits
// [DeleteElection] and [RestartElection].
func WithContext(ctx context.Context) Option { return optionFunc(func(o *options) { o.ctx = ctx }) }

// NewElection creates a candidate for the election with the given name. An election exists
// when a candidate has joined it. Nothing is written before ElectLeader.
//
// Errors: [leaderelection.ErrInvalid] if node is nil, if an option is invalid, or if the name
// is empty, longer than 1 KiB or not UTF-8, and [api.ErrClosed] or [api.ErrFault].
func NewElection(node *Node, name string, opts ...Option) (*Election, error) {
	o, err := newOptions(node, name, opts)
	if err != nil {
		return nil, err
	}
	if err := node.Err(); err != nil {
		return nil, connClosedError(err)
	}
	log := node.log.With("election", name, "client", o.clientName)
	return &Election{
		node: node, name: name, opts: o,
		candidacy: candidacy.New(o.ctx, log), changed: make(chan struct{}, 1),
	}, nil
}

// newOptions returns the result of applying the options, and an error if an option, the node or the name is
// invalid.
func newOptions(node *Node, name string, opts []Option) (options, error) {
	o := options{ctx: context.Background()}
	for _, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("%w: an option is nil", leaderelection.ErrInvalid)
		}
		opt.apply(&o)
	}
	if err := checkElection(node, name); err != nil {
		return o, err
	}
	switch {
	case o.ctx == nil:
		return o, fmt.Errorf("%w: WithContext(nil)", leaderelection.ErrInvalid)
	case o.guard < 0 || o.guard > node.cfg.ElectionTimeout/4:
		return o, fmt.Errorf("%w: WithStopGuard(%v): must be from 0 to %v, a quarter of ElectionTimeout", leaderelection.ErrInvalid, o.guard, node.cfg.ElectionTimeout/4)
	}
	return o, CheckCandidate(o.clientName, o.value)
}

// checkElection rejects a node that is nil, and a name that CheckName rejects.
func checkElection(node *Node, name string) error {
	if node == nil {
		return fmt.Errorf("raftlog: the node is nil: %w", leaderelection.ErrInvalid)
	}
	return CheckName(name)
}

// CheckName returns an error that wraps [leaderelection.ErrInvalid] if name is not
// valid for an election: if it is empty, longer than 1 KiB or not UTF-8, or contains control
// characters. It sends nothing.
func CheckName(name string) error {
	if err := wire.CheckElection(name); err != nil {
		return fmt.Errorf("%w: %w", leaderelection.ErrInvalid, err)
	}
	return nil
}

// CheckCandidate returns an error that wraps [leaderelection.ErrInvalid] if a candidate
// cannot have the given name and value: see [WithName] and [WithValue]. It sends nothing.
func CheckCandidate(clientName, value string) error {
	err := record.Check(clientName, value)
	switch {
	case err != nil:
	case !utf8.ValidString(clientName):
		err = fmt.Errorf("WithName: %q is not UTF-8", clientName)
	case !utf8.ValidString(value):
		err = fmt.Errorf("WithValue: %q is not UTF-8", value)
	case len(record.Encode(clientName, value)) > wire.MaxElection:
		err = fmt.Errorf("WithName, WithValue: the name of %d bytes and the value of %d bytes exceed the limit of %d", len(clientName), len(value), wire.MaxElection)
	default:
		return nil
	}
	return fmt.Errorf("%w: %w", leaderelection.ErrInvalid, err)
}

// connClosedError wraps err, the reason why the node has stopped, and ErrConnClosed.
func connClosedError(err error) error {
	return fmt.Errorf("%w: %w", leaderelection.ErrConnClosed, err)
}

// removedError returns the error of an election whose peer was removed.
func removedError(node *Node) error {
	return connClosedError(fmt.Errorf("%w: peer %s was removed from the cluster", api.ErrRefused, node.cfg.ID))
}

// ID returns the ID of this candidate, which consists of its peer's ID and a random number.
// It is "" before the candidate has joined.
func (e *Election) ID() string { return e.candidacy.ID() }

// Status implements [leaderelection.Candidate]. NowFollowing is the direct predecessor in
// the queue, and Next is true for the second candidate of the queue as this peer knows it.
// FormerErr is [leaderelection.ErrResigned] if the former leader has left the queue after its
// leadership, and [leaderelection.ErrLeaseExpired] if it was removed, because its peer had not
// responded for an election timeout.
//
// A leader that cannot renew its lease becomes Suspended. It becomes leader again, with the same
// token, if it can renew the lease in time; otherwise it becomes a Follower at the back of the
// queue.
func (e *Election) Status() <-chan leaderelection.Status { return e.candidacy.Status() }

// Current implements [leaderelection.Candidate].
func (e *Election) Current() leaderelection.Status { return e.candidacy.Current() }

// Events implements [leaderelection.Candidate]. [event.HandOver],
// [event.Checked] and [event.Watched] are not reported.
func (e *Election) Events() <-chan event.Event { return e.candidacy.Events() }

// ElectLeader implements [leaderelection.Candidate]. It blocks until the candidacy is over
// and returns the error of the final status, or nil after Resign or when the context of
// [WithContext] is done. Errors: [leaderelection.ErrElectionOver];
// [leaderelection.ErrConnClosed] together with [api.ErrClosed] or [api.ErrFault] if the node has
// stopped; [leaderelection.ErrConnClosed] together with [api.ErrRefused] if the peer was
// removed from the cluster. If the cluster has no majority, the candidate waits.
func (e *Election) ElectLeader() error {
	return e.candidacy.Run(func(ctx context.Context) error {
		id := fmt.Sprintf("%s/%016x", e.node.cfg.ID, rand.Uint64())
		e.candidacy.SetID(id)
		return (&campaign{election: e, id: id}).runCampaign(ctx)
	})
}

// publishedQueue is a queue that the loop has published, and that no code modifies any more.
type publishedQueue struct {
	replica.Election
	// After the end of the election, last is the last queue before it, and lease is the lease of the
	// node at that time. No other candidate leads before this lease expires. A lease that is granted
	// later does not prevent another peer from restarting the election.
	last  *replica.Election
	lease *time.Time
}

// setQueue publishes the queue, and signals the candidate. The loop calls it.
func (e *Election) setQueue(queue replica.Election) {
	e.publishQueue(queue)
	signal(e.changed)
}

// publishQueue publishes the queue to the candidate. The loop calls it before it publishes a lease that
// was granted for this queue.
func (e *Election) publishQueue(queue replica.Election) {
	q := &publishedQueue{Election: queue}
	switch before := e.queue.Load(); {
	case !queue.Ended || before == nil:
	case before.Ended:
		q.last, q.lease = before.last, before.lease
	default:
		q.last, q.lease = &before.Election, e.node.lease.Load()
	}
	e.queue.Store(q)
}

// Resign implements [leaderelection.Candidate]. The next candidate becomes leader as soon
// as the resignation is in the log, which is when Resign returns nil.
func (e *Election) Resign() error {
	ctx, cancel := context.WithTimeout(e.node.ctx, limit.Confirm)
	defer cancel()
	e.candidacy.Stop(leaderelection.ErrResigned)
	<-e.candidacy.Done()
	if e.unconfirmed != nil && !e.unconfirmed.confirmRemoval(ctx) {
		return fmt.Errorf("raftlog: resign: %w: %s may still be a candidate", leaderelection.ErrUnconfirmed, e.ID())
	}
	return nil
}

// hasLeftQueue reports whether the candidate is not in the queue, as far as this peer has applied the log.
func (e *Election) hasLeftQueue() bool {
	left := false
	err := e.node.callLoop(context.Background(), func(c *core.Core) { left = c.Replica().Elections.Get(e.name).Position(e.ID()) < 0 })
	return err == nil && left
}

// EndElection implements [leaderelection.Candidate]. It ends the election as
// [DeleteElection] does. If the end is not confirmed in time, this candidacy ends
// nevertheless, and the attempt continues until it succeeds or the node is closed.
func (e *Election) EndElection() error {
	return e.candidacy.End(fmt.Sprintf("raftlog: end election %q", e.name), func() error {
		deleted := make(chan error, 1)
		if !e.node.startGoroutine(func() { deleted <- DeleteElection(e.node, e.name, WithContext(e.node.ctx)) }) {
			return connClosedError(e.node.Err())
		}
		return <-deleted
	})
}

// DeleteElection ends the election with the given name for all its candidates, including
// the leader, and for later ones, which end with [leaderelection.ErrElectionOver].
// [RestartElection] allows it again. The cluster remembers the end for Config.Window, or
// until 131,072 other elections were ended or restarted; after that, new candidates restart
// the election. DeleteElection blocks until the end is in the log, and returns immediately
// if the election has ended before. Use [WithContext] to bound the wait.
//
// Errors: [leaderelection.ErrUnconfirmed] if that context is done first or the call has taken longer than
// Config.Window, [leaderelection.ErrConnClosed] if the node has stopped, and [leaderelection.ErrInvalid] like
// [NewElection]. After an error, DeleteElection may be called again.
func DeleteElection(node *Node, name string, opts ...Option) error {
	return changeElection(node, replica.Op{Do: replica.End, Election: name}, opts)
}

// RestartElection allows an election that has ended to start again. It does not change an election
// that has not ended. Errors are those of [DeleteElection].
func RestartElection(node *Node, name string, opts ...Option) error {
	return changeElection(node, replica.Op{Do: replica.Restart, Election: name}, opts)
}

// changeElection proposes an operation again and again until its outcome is known. It sets op.Through to the
// last index that this peer knows, so that the operation has no effect, even if the log applies it later or
// repeatedly, on an election that was restarted, or ended, after this call.
func changeElection(node *Node, op replica.Op, opts []Option) error {
	o, err := newOptions(node, op.Election, opts)
	if err != nil {
		return err
	}
	ctx := o.ctx
	err = node.readLinearizable(ctx, (*core.Core).ReadReplica) // ReadReplica, unlike Read, does not wait for the state machine
	over := false
	if err == nil {
		err = node.callLoop(ctx, func(c *core.Core) {
			op.Through = c.Replica().Index
			over = c.Replica().Elections.Get(op.Election).Ended
		})
	}
	switch {
	case err == nil && over && op.Do == replica.End:
		// Do not propose the operation: if it were delayed until the peers have forgotten this end, they
		// could not tell whether it should end the election that new candidates have started since.
		return nil
	case err != nil:
		return changeError(ctx, node, op, err)
	}
	for {
		err := node.proposeOp(ctx, op)
		if err == nil || ctx.Err() != nil || node.Err() != nil || !errors.Is(err, api.ErrUnknownOutcome) {
			return changeError(ctx, node, op, err)
		}
	}
}

// changeError returns the documented error of DeleteElection or RestartElection for an error of the log.
func changeError(ctx context.Context, node *Node, op replica.Op, err error) error {
	switch {
	case err == nil:
		return nil
	case node.Err() != nil:
		return connClosedError(node.Err())
	case ctx.Err() != nil || errors.Is(err, api.ErrStale):
		err = fmt.Errorf("%w: %w", leaderelection.ErrUnconfirmed, err)
	}
	return fmt.Errorf("raftlog: %s of election %q: %w", op.Do, op.Election, err)
}
