package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/ending"
)

// Election is a candidate in an election on etcd. It implements
// [leaderelection.Candidate]. Create it with [NewElection]. Its methods may be called
// from any goroutine.
type Election struct {
	client *clientv3.Client
	node   string
	*options
	nodeRev int64 // the create revision of node, by which one election is told from another
	feed    *leaderelection.StatusFeed

	standing context.Context // until Resign, EndElection or WithContext's end
	stop     context.CancelCauseFunc
	over     chan struct{} // closed when the candidacy is over

	listens chan struct{} // capacity 1: ResignRequested was called

	mu       sync.Mutex
	started  bool
	place    place
	asked    chan struct{} // of ResignRequested; nil before it is called
	grant    *leaderelection.Leadership
	revoke   context.CancelCauseFunc // ends grant
	removals []*removal              // those that are not confirmed, one for each lease
	end      ending.Ending           // by EndElection
}

var _ leaderelection.Candidate = (*Election)(nil)

// NewElection creates a candidate for the election at node, a key such as "/election". It
// sends one request, to check that the election node exists, and writes nothing unless
// [WithCreateNode] is given. The caller keeps ownership of client, which many elections
// may share. If the client is closed before a candidacy is over, the candidate's key
// remains until its lease expires.
//
// The key must not end in a slash. If candidates of etcd's package concurrency
// participate, there must be no other election below the key, because they wait for all
// keys there.
//
// Errors: [leaderelection.ErrNilConn], [leaderelection.ErrConnClosed],
// [leaderelection.ErrInvalidPath], [leaderelection.ErrInvalidOption],
// [leaderelection.ErrNoElection], [leaderelection.ErrPermission], and
// [leaderelection.ErrUnreachable] if etcd did not answer within the session timeout.
func NewElection(client *clientv3.Client, node string, opts ...Option) (*Election, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if err := check(client, node); err != nil {
		return nil, err
	}
	e := &Election{
		client: client, node: node, options: o,
		feed: leaderelection.NewStatusFeed(), over: make(chan struct{}), listens: make(chan struct{}, 1),
	}
	if err := e.findNode(); err != nil {
		return nil, fmt.Errorf("election at %s: %w", node, err)
	}
	e.standing, e.stop = context.WithCancelCause(o.ctx)
	return e, nil
}

// findNode looks for the election node, and creates it where that is asked for.
func (e *Election) findNode() error {
	return e.ask(e.client, func(ctx context.Context) error {
		got, err := e.client.Get(ctx, e.node, clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		if e.nodeRev = createRevision(got.Kvs); e.nodeRev != 0 {
			return nil
		}
		if !e.createNode {
			return &endError{errNoElection}
		}
		put, err := e.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(e.node), "=", 0)).
			Then(clientv3.OpPut(e.node, "")).
			Else(clientv3.OpGet(e.node, clientv3.WithKeysOnly())).Commit()
		if err != nil {
			return err
		}
		if e.nodeRev = put.Header.Revision; !put.Succeeded {
			e.nodeRev = createRevision(put.Responses[0].GetResponseRange().Kvs)
		}
		return nil
	})
}

// ask has etcd answer a request that may be repeated, within a session timeout.
func (o *options) ask(client *clientv3.Client, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(o.ctx, o.timeout, errUnreachable)
	defer cancel()
	return again(ctx, client, o.timeout/2, f)
}

// ID returns the key of the candidate, or "" before it has one.
func (e *Election) ID() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.place.key
}

// Status implements [leaderelection.Candidate].
func (e *Election) Status() <-chan leaderelection.Status { return e.feed.C() }

// Current implements [leaderelection.Candidate].
func (e *Election) Current() leaderelection.Status { return e.feed.Current() }

// ElectLeader implements [leaderelection.Candidate]: it runs the candidacy and blocks
// until it is over. It returns the error of the final status, or nil after Resign or when
// the context of [WithContext] is done. In addition to the errors of a
// [leaderelection.Leadership], it returns [leaderelection.ErrPermission] and, before the
// candidate has joined the queue, [leaderelection.ErrUnreachable].
func (e *Election) ElectLeader() error {
	e.mu.Lock()
	switch {
	case e.isOver():
		e.mu.Unlock()
		return leaderelection.ErrCandidacyOver
	case e.started:
		e.mu.Unlock()
		return leaderelection.ErrAlreadyStarted
	}
	e.started = true
	e.mu.Unlock()
	return e.conclude(e.stand())
}

// stand stands in line, again after each lease when it may rejoin, and returns what ended the
// candidacy.
func (e *Election) stand() error {
	for {
		err := e.stay()
		if err = e.reason(err); !e.rejoin || !errors.Is(err, leaderelection.ErrSessionExpired) {
			return err
		}
		// Told at once that it is no leader any more; the next place in line may be long in
		// coming.
		e.publish(leaderelection.Status{})
	}
}

// reason is why a candidacy or leadership has ended, in the library's terms.
func (e *Election) reason(err error) error {
	if e.standing.Err() != nil && errors.Is(err, context.Cause(e.standing)) && !errors.Is(err, leaderelection.ErrElectionOver) {
		return leaderelection.ErrResigned
	}
	return err
}

// conclude ends the candidacy for the reason err and returns what ElectLeader returns.
func (e *Election) conclude(err error) error {
	e.stop(leaderelection.ErrCandidacyOver) // releases the context
	if errors.Is(err, leaderelection.ErrResigned) {
		err = nil
		e.feed.Withdraw()
	} else {
		e.feed.Finish(leaderelection.Status{CandidateID: e.ID(), WasFollowing: e.Current().NowFollowing, Err: err})
	}
	e.log.Info("candidacy ended", "election", e.node, "client", e.clientName, "id", e.ID(), "reason", err)
	close(e.over)
	return err
}

func (e *Election) publish(s leaderelection.Status) {
	s.CandidateID, s.WasFollowing = e.ID(), e.Current().NowFollowing
	e.log.Info("status changed", "election", e.node, "client", e.clientName, "status", s)
	e.feed.Publish(s)
}

// leads reports whether there is a grant.
func (e *Election) leads() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.grant != nil
}

// lead begins a leadership, which ends by itself at what deadline says.
func (e *Election) lead(token int64, deadline func() time.Time) {
	grant, revoke := leaderelection.NewLeadership(token, deadline)
	e.mu.Lock()
	e.grant, e.revoke = grant, revoke
	e.mu.Unlock()
	e.publish(leaderelection.Status{Role: leaderelection.Leader, Leadership: grant})
}

// lose ends the leadership, if there is one, which closes its Done.
func (e *Election) lose(reason error) (led bool) {
	e.mu.Lock()
	revoke := e.revoke
	e.grant, e.revoke = nil, nil
	e.mu.Unlock()
	if revoke != nil {
		revoke(reason)
	}
	return revoke != nil
}
