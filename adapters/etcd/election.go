package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/event"
)

// Election is a candidate in an election on etcd. It implements
// [leaderelection.Candidate]. Create it with [NewElection]. Its methods may be called
// from any goroutine.
type Election struct {
	client    *clientv3.Client
	node      string
	options   *options
	nodeRev   int64        // nodeRev is the create revision of node. A re-created node is another election.
	log       *slog.Logger // log adds the names of the election and the candidate to each message.
	candidacy candidacy.Candidacy
	// listening receives one value, when ResignRequested is called for the first time.
	listening chan struct{}

	mu              sync.Mutex
	resignRequested chan struct{} // resignRequested is the channel of ResignRequested, or nil before its first call.
	revocations     []*revocation // revocations are those of earlier leases that are not confirmed yet.
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
	if err := checkArguments(client, node); err != nil {
		return nil, err
	}
	log := o.log.With("election", node, "client", o.clientName)
	e := &Election{
		client: client, node: node, options: o, log: log,
		listening: make(chan struct{}, 1),
	}
	if err := e.openNode(); err != nil {
		return nil, fmt.Errorf("election at %s: %w", node, err)
	}
	// Not before: it remains registered with the context until it is over.
	e.candidacy = candidacy.New(o.ctx, log)
	return e, nil
}

// openNode sets nodeRev. It creates the election node if the options say so.
func (e *Election) openNode() error {
	return e.options.retryWithinTimeout(e.client, func(ctx context.Context) error {
		got, err := e.client.Get(ctx, e.node, clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		if e.nodeRev = createRevision(got.Kvs); e.nodeRev != 0 {
			return nil
		}
		if !e.options.createNode {
			return &permanentError{errNoElection}
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

// ID returns the key of the candidate, or "" before it has one.
func (e *Election) ID() string { return e.candidacy.ID() }

// Status implements [leaderelection.Candidate].
func (e *Election) Status() <-chan leaderelection.Status { return e.candidacy.Status() }

// Current implements [leaderelection.Candidate].
func (e *Election) Current() leaderelection.Status { return e.candidacy.Current() }

// Events implements [leaderelection.Candidate]. [event.Checked] is a keepalive
// request. [event.Watched] is not reported.
func (e *Election) Events() <-chan event.Event { return e.candidacy.Events() }

// ElectLeader implements [leaderelection.Candidate]: it runs the candidacy and blocks
// until it is over. It returns the error of the final status, or nil after Resign or when
// the context of [WithContext] is done. In addition to the errors of a
// [leaderelection.Leadership], it returns [leaderelection.ErrPermission] and, before the
// candidate has joined the queue, [leaderelection.ErrUnreachable].
func (e *Election) ElectLeader() error { return e.candidacy.Run(e.runCandidacy) }

// runCandidacy participates in the election with one lease after another until the candidacy is
// over, and returns the reason.
func (e *Election) runCandidacy(ctx context.Context) error {
	for {
		err := e.participate(ctx)
		if !e.options.rejoin || ctx.Err() != nil || !errors.Is(err, leaderelection.ErrSessionExpired) {
			return err
		}
		// It can take long to join the queue again, so the status is published before.
		e.log.Info("rejoining with a new lease", "id", e.ID())
		e.candidacy.Publish(leaderelection.Status{})
	}
}
