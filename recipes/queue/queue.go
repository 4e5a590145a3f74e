package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Queue is a participant of a queue: a producer, a consumer or both. Its methods may be
// called from any goroutine. It must be closed.
type Queue struct {
	cfg    config
	setup  *recipe.Setup
	conn   *zk.Conn
	path   string // the directory of the items
	acl    []zk.ACL
	layout recipe.Layout
	log    *slog.Logger
	writer *txn.Writer

	// ctx is done when Close is called.
	ctx  context.Context
	stop context.CancelCauseFunc
	// running counts the calls and goroutines that Close waits for.
	running sync.WaitGroup
	// closed is closed when Close is complete. closeErr, which is set before, is the reason why znodes may
	// remain.
	closed   chan struct{}
	closeErr error

	// wake has capacity 1. It wakes the dispatcher when the requests have changed.
	wake chan struct{}
	// leaseChanged has capacity 1. It wakes the dispatcher when the lease may have changed.
	leaseChanged chan struct{}

	// exhausted is set when the sequence numbers of the directory are exhausted.
	exhausted atomic.Bool

	mu          sync.Mutex
	requests    []*takeRequest // requests that were not answered yet
	lastRequest uint64         // the number of the last request
	// sub and dispatcher are nil before the first request.
	sub        *connection.Subscription
	dispatcher *dispatcher
	// deliveries contains the items that this participant has claimed.
	deliveries map[*delivery]struct{}
	// returned contains the items that the dispatcher must add to its list again, because this participant has
	// deleted their claims.
	returned []returnedItem
	connErr  error // the reason why the queue cannot be used; set when the connection is closed
	closing  bool
}

// New returns a participant of the queue at path. It sends no request. Errors:
// [recipes.ErrInvalid].
func New(conn *zk.Conn, path string, opts ...Option) (*Queue, error) {
	cfg := config{maxAttempts: defaultMaxAttempts}
	s, err := recipe.NewOwn(conn, path, &cfg, opts, Option.ApplyQueue)
	if err != nil {
		return nil, err
	}
	items, err := cfg.applyDefaults(path, s.Layout)
	if err != nil {
		return nil, err
	}
	s.Log = s.Log.With("queue", path)
	q := &Queue{
		cfg: cfg, setup: s, conn: conn, path: items, acl: s.ACL, layout: s.Layout, log: s.Log,
		closed: make(chan struct{}), wake: make(chan struct{}, 1), leaseChanged: make(chan struct{}, 1),
		deliveries: map[*delivery]struct{}{},
	}
	q.ctx, q.stop = context.WithCancelCause(context.Background())
	q.writer = txn.New(txn.Config{Options: s.Options, Dir: q.cfg.claims, MakeDir: q.makeClaims})
	return q, nil
}

// Create creates the znodes of the queue if they do not exist: the directory of the items
// and the directory of the claims. Put and Take do so as well; Create is for programs that
// only put items by a transaction, with [Queue.PutRequest]. It blocks until ZooKeeper has
// answered or ctx is done. Errors: the cause of ctx, [recipes.ErrClosed], [recipes.ErrPermission],
// [recipes.ErrConnClosed].
func (q *Queue) Create(ctx context.Context) error {
	err := q.startCall()
	if err == nil {
		defer q.running.Done()
		err = q.makeItems(ctx)
	}
	if err == nil {
		err = q.makeClaims(ctx)
	}
	return q.wrapError("create", err)
}

// The directories of items and claims are persistent znodes, not containers. If the directory of the claims
// does not exist, a consumer of Curator assumes that another consumer has claimed the item. If the sequence
// numbers of items started again, an old claim could block a new item of the same name.

func (q *Queue) makeItems(ctx context.Context) error {
	return connection.MakeZnode(ctx, q.conn, q.path, q.acl, false)
}

func (q *Queue) makeClaims(ctx context.Context) error {
	return connection.MakeZnode(ctx, q.conn, q.cfg.claims, q.acl, false)
}

func (q *Queue) makeDead(ctx context.Context) error {
	return connection.MakeZnode(ctx, q.conn, q.cfg.dead, q.acl, true)
}

// checkDirs checks the directory of the items and the directory of the claims, in which the writer creates its
// record. It returns a connection.OpenError if other clients may change one of them.
func (q *Queue) checkDirs(ctx context.Context) error {
	if err := q.setup.CheckDir(ctx, q.path, q.makeItems); err != nil {
		return err
	}
	return q.setup.CheckDir(ctx, q.cfg.claims, q.makeClaims)
}

func (q *Queue) itemPath(name string) string  { return path.Join(q.path, name) }
func (q *Queue) claimPath(name string) string { return path.Join(q.cfg.claims, name) }

// Len returns the number of items, including claimed and delayed items and unrecognized children of the znode.
// The result may be slightly out of date.
func (q *Queue) Len(ctx context.Context) (int, error) {
	n, err := q.countItems(ctx)
	return n, q.wrapError("count items of", err)
}

func (q *Queue) countItems(ctx context.Context) (int, error) {
	stat, err := connection.ReadStat(ctx, q.conn, q.path)
	if err != nil {
		return 0, err
	}
	return int(stat.NumChildren), nil
}

// names returns the names of the children of a directory, or none if the directory does not exist.
func (q *Queue) names(ctx context.Context, dir string) ([]string, error) {
	return connection.ListExisting(ctx, q.conn, dir)
}

// untilClosed returns a context that also ends with [recipes.ErrClosed] when the queue is closed.
func (q *Queue) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(q.ctx, func() { cancel(recipes.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// Close returns claimed items to the queue, completes pending requests, and returns nil when no znode of this
// participant exists any more. Items end with [recipes.ErrClosed], loops over [Queue.Items] end with this
// error, and later calls return it, except for calls that only read.
//
// Close blocks for at most two seconds. It returns an error that wraps
// [recipes.ErrUnconfirmed] if ZooKeeper has not answered by then, and continues in the
// background until it is complete, the session ends or the connection is closed; or if the
// connection is closed. It may be called repeatedly, to check its current state.
func (q *Queue) Close() error {
	q.mu.Lock()
	first := !q.closing
	q.closing = true
	q.mu.Unlock()
	if first {
		q.stop(recipes.ErrClosed)
		go q.shutDown()
	}
	if !limit.Await(q.closed, time.Now().Add(limit.Confirm)) {
		return fmt.Errorf("close %s: %w: %w", q.path, connection.ErrUnconfirmed, limit.ErrConfirm)
	}
	if q.closeErr == nil {
		return nil
	}
	return fmt.Errorf("close %s: %w: %w", q.path, connection.ErrUnconfirmed, connection.Refine(q.conn, q.closeErr))
}

// shutDown is the part of Close that can continue in the background.
func (q *Queue) shutDown() {
	defer close(q.closed)
	ended := q.endAllDeliveries(recipes.ErrClosed)
	q.running.Wait() // no item is claimed after this
	ended = append(ended, q.endAllDeliveries(recipes.ErrClosed)...)
	var returning sync.WaitGroup
	for _, d := range ended {
		returning.Go(func() { q.returnClaim(d) })
	}
	returning.Wait()
	if q.dispatcher != nil {
		for name, id := range q.dispatcher.uncertain {
			q.dispatcher.deleteUncertainClaim(name, id)
		}
		q.dispatcher.sub.Close()
		q.sub.Close()
	}
	q.closeErr = q.writer.Close()
}

// startCall counts a call that Close must wait for. It returns an error if the queue is closed.
func (q *Queue) startCall() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.closedErr(); err != nil {
		return err
	}
	q.running.Add(1)
	return nil
}

// closedErr returns the reason why items can neither be put nor taken any more: the queue or the connection
// is closed. Otherwise it returns nil. The caller holds mu.
func (q *Queue) closedErr() error {
	if q.closing {
		return recipes.ErrClosed
	}
	return q.connErr
}

func (q *Queue) wakeDispatcher() { connection.Signal(q.wake) }

// wrapError translates an error by translateError, and adds the operation and the path of the queue to it.
func (q *Queue) wrapError(operation string, err error) error {
	return recipe.Fail(q.conn, operation, q.path, q.translateError(err))
}

// translateError replaces internal errors by the errors of package recipes.
func (q *Queue) translateError(err error) error {
	if errors.Is(err, txn.ErrClosed) {
		return recipes.ErrClosed
	}
	return connection.Refine(q.conn, err)
}
