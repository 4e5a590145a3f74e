package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/event"
)

// Election is a candidate in an election on etcd. It implements
// [leaderelection.Candidate]. Create it with [NewElection]. Its methods may be called
// from any goroutine.
type Election struct {
	client    *clientv3.Client
	node      string
	options   *options
	log       *slog.Logger // log adds the names of the election and the candidate to each message.
	outage    *outageLog
	candidacy candidacy.Candidacy
	// nodeRev is the create revision of node, or 0 as long as it is not known. A re-created node is
	// another election.
	nodeRev atomic.Int64
	// known is the newest position in etcd's history that a response has shown, by which a loss of data is
	// recognized. joined reports whether the candidate has joined the queue at least once. ttl is the longest
	// TTL that it has requested or that etcd has granted to it. Only the goroutine of ElectLeader uses them.
	known  position
	joined bool
	ttl    time.Duration
	// listening receives one value, when ResignRequested is called for the first time, so that the
	// goroutine of ElectLeader reads the queue and finds a request that was made before.
	listening chan struct{}

	mu              sync.Mutex
	resignRequested chan struct{} // resignRequested is the channel of ResignRequested, or nil before its first call.
	revocations     []*revocation // revocations are the revocations of earlier leases that etcd has not confirmed yet.
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
// Errors: [leaderelection.ErrInvalid], [leaderelection.ErrConnClosed],
// [leaderelection.ErrNoElection], [leaderelection.ErrPermission], and
// [leaderelection.ErrUnreachable] if etcd did not execute the request within the session
// timeout. With [WithRejoin], NewElection does not fail with ErrUnreachable: ElectLeader
// waits for etcd and looks for the election node.
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
		client: client, node: node, options: o, log: log, outage: &outageLog{client: client, log: log},
		ttl: o.timeout, listening: make(chan struct{}, 1),
	}
	ctx, cancel := context.WithTimeoutCause(o.ctx, o.timeout, errUnreachable)
	defer cancel()
	if err := e.openNode(ctx); err != nil && !(o.rejoin && errors.Is(err, leaderelection.ErrUnreachable)) {
		return nil, fmt.Errorf("election at %s: %w", node, err)
	}
	// Create the candidacy last, because it remains registered with the context until it is over.
	e.candidacy = candidacy.New(o.ctx, log)
	return e, nil
}

// retry repeats a request of the candidacy until it succeeds. Before the candidate has joined the queue for the
// first time, an error that only an operator can resolve ends the candidacy; later it is retried like any other.
func (e *Election) retry(ctx context.Context, f func(ctx context.Context) error) error {
	return retrier{e.client, e.options.timeout / 2, e.joined, e.outage}.run(ctx, f)
}

// openNode reads the election node and sets nodeRev. With WithCreateNode, it creates a missing node.
func (e *Election) openNode(ctx context.Context) error {
	return e.retry(ctx, func(ctx context.Context) error {
		got, err := e.client.Get(ctx, e.node, clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		header, nodeRev := got.Header, createRevision(got.Kvs)
		if nodeRev == 0 {
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
			if header, nodeRev = put.Header, put.Header.Revision; !put.Succeeded {
				nodeRev = createRevision(put.Responses[0].GetResponseRange().Kvs)
			}
		}
		e.known = positionOf(header, nodeRev)
		e.nodeRev.Store(nodeRev)
		return nil
	})
}

// ID returns the key of the candidate, or "" before the candidate has a key.
func (e *Election) ID() string { return e.candidacy.ID() }

// Status implements [leaderelection.Candidate]. Next can become true up to a TTL after the candidate has become
// the second candidate, because a candidate watches only its predecessor, and stays false while the queue
// contains keys that are not candidates.
func (e *Election) Status() <-chan leaderelection.Status { return e.candidacy.Status() }

// Current implements [leaderelection.Candidate].
func (e *Election) Current() leaderelection.Status { return e.candidacy.Current() }

// Events implements [leaderelection.Candidate]. [event.Checked] reports the result of a
// keepalive, or a failed read of the queue. [event.Watched] is not reported.
func (e *Election) Events() <-chan event.Event { return e.candidacy.Events() }

// ElectLeader implements [leaderelection.Candidate]: it runs the candidacy and blocks
// until it is over. It returns the error of the final status, or nil after Resign or when
// the context of [WithContext] is done. In addition to the errors of a
// [leaderelection.Leadership], it returns [leaderelection.ErrPermission] and
// [leaderelection.ErrUnreachable], but only before the candidate has joined the queue.
// After that a candidate retries requests that etcd rejects, because permissions and
// passwords can be corrected, and reports the errors by [event.Checked] and in the log. If
// etcd rejects them for a TTL, the candidate gives up its place in the queue: its
// candidacy ends as if its lease had expired, or continues with [WithRejoin].
func (e *Election) ElectLeader() error { return e.candidacy.Run(e.runCandidacy) }

// runCandidacy participates in the election with one lease after another until the candidacy is
// over, and returns the reason.
func (e *Election) runCandidacy(ctx context.Context) error {
	for {
		sole, err := e.stayInQueue(ctx)
		if !e.options.rejoin || ctx.Err() != nil || !errors.Is(err, leaderelection.ErrSessionExpired) {
			return err
		}
		// Joining the queue again can take long, so first publish that the candidate leads and has no predecessor.
		e.log.Info("rejoining with a new lease", "id", e.ID(), "err", err)
		e.candidacy.Publish(leaderelection.Status{})
		lost := errors.Is(err, errDataLost)
		if lost {
			e.nodeRev.Store(0)
		}
		if sole || !lost && !errors.Is(err, errEndedEarly) {
			continue // Do not wait, because no data were lost, or this candidate was the head of the lost queue.
		}
		// Wait for a TTL: if etcd has lost data, another candidate may lead by the lost queue, and not know of the loss
		// until its lease expires. The TTL of that lease is not known, so all candidates must request the same TTL.
		if err := limit.Pause(ctx, e.ttl); err != nil {
			return err
		}
	}
}
