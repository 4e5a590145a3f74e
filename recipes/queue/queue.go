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
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Config configures a queue. All participants of a queue should use the same Config, except
// for Prefetch. The zero Config has no limits.
type Config struct {
	// MaxItems is the number of items at which Put returns [ErrFull], or 0 for no limit.
	// Claimed and delayed items count. Concurrent calls of Put can exceed it.
	MaxItems int
	// MaxAttempts is the number of deliveries after which an item becomes a dead letter, or
	// 0 for no limit.
	MaxAttempts int
	// Prefetch is the number of items that Consume claims before they are received, at most
	// 10000. 0 means 1. Other consumers cannot take these items, and each counts as an
	// attempt if this process dies.
	Prefetch int
	// Claims is the directory of the claims, which Curator calls the lock path. The default
	// is <path>-claims. Each queue needs a separate directory. With [recipes.Kazoo] it is
	// <path>/taken and cannot be changed.
	Claims string
	// Dead is the directory of the dead letters. The default is <path>-dead, or <path>/dead
	// with [recipes.Kazoo].
	Dead string
}

// maxPrefetch is the limit of Config.Prefetch, because Consume allocates memory for so many items.
const maxPrefetch = 10000

// Queue is a participant of a queue: a producer, a consumer or both. Its methods may be
// called from any goroutine. It must be closed.
type Queue struct {
	cfg    Config
	setup  *recipe.Setup
	conn   *zk.Conn
	path   string // the directory of the items
	acl    []zk.ACL
	layout recipes.Layout
	log    *slog.Logger
	writer *txn.Writer

	// ctx is done when Close is called.
	ctx  context.Context
	stop context.CancelCauseFunc
	// running counts the calls and goroutines that Close waits for.
	running sync.WaitGroup
	// closed is closed when Close is complete. closeErr is set before: the reason why znodes
	// may remain.
	closed   chan struct{}
	closeErr error

	// wake, of capacity 1, wakes the dispatcher when it must look at the requests again.
	wake chan struct{}
	// leaseChanged, of capacity 1, wakes the dispatcher when the lease may have changed.
	leaseChanged chan struct{}

	// exhausted means that the sequence numbers of the directory are exhausted.
	exhausted atomic.Bool

	mu          sync.Mutex
	requests    []*takeRequest // not answered yet
	lastRequest uint64         // the number of the last request
	// sub and dispatcher are nil before the first request.
	sub        *session.Subscription
	dispatcher *dispatcher
	// deliveries are the items that this participant has claimed.
	deliveries map[*delivery]struct{}
	// returned are items that the dispatcher must list again, because their claims were deleted.
	returned   []returnedItem
	consumeErr error // the result of Err
	connErr    error // not nil if the connection was closed
	closing    bool
}

// New returns a participant of the queue at path. It sends no request. Errors:
// [recipes.ErrInvalid].
func New(conn *zk.Conn, path string, cfg Config, opts ...recipes.Option) (*Queue, error) {
	s, err := recipe.New(conn, path, opts)
	if err != nil {
		return nil, err
	}
	items, err := cfg.applyDefaults(path, s.Layout)
	if err != nil {
		return nil, err
	}
	q := &Queue{
		cfg: cfg, setup: s, conn: conn, path: items, acl: s.ACL, layout: s.Layout,
		log: s.Log.With("queue", path), closed: make(chan struct{}), wake: make(chan struct{}, 1), leaseChanged: make(chan struct{}, 1),
		deliveries: map[*delivery]struct{}{},
	}
	q.ctx, q.stop = context.WithCancelCause(context.Background())
	q.writer = txn.New(txn.Config{Conn: conn, Dir: q.cfg.Claims, ACL: s.ACL, MakeDir: q.makeClaims, Log: q.log})
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

// applyDefaults checks the configuration, sets the fields that have a default, and returns the
// directory of the items.
func (c *Config) applyDefaults(queue string, layout recipes.Layout) (items string, err error) {
	switch {
	case c.MaxItems < 0, c.MaxAttempts < 0, c.Prefetch < 0:
		return "", fmt.Errorf("%w: %+v: a number is negative", zkerror.ErrInvalid, *c)
	case c.Prefetch > maxPrefetch:
		return "", fmt.Errorf("%w: Prefetch: %d is greater than %d", zkerror.ErrInvalid, c.Prefetch, maxPrefetch)
	case layout == recipes.Kazoo && c.Claims != "":
		return "", fmt.Errorf("%w: Claims: kazoo's layout uses %s/taken", zkerror.ErrInvalid, queue)
	}
	items, claims, dead := queue, queue+"-claims", queue+"-dead"
	if layout == recipes.Kazoo {
		items, claims, dead = queue+"/entries", queue+"/taken", queue+"/dead"
	}
	for _, d := range []struct {
		dir    *string
		preset string
	}{{&c.Claims, claims}, {&c.Dead, dead}} {
		if *d.dir == "" {
			*d.dir = d.preset
		}
		if err := znode.CheckPath(*d.dir); err != nil {
			return "", err
		}
	}
	if c.Claims == items || c.Dead == items || c.Claims == c.Dead {
		return "", fmt.Errorf("%w: items, claims and dead letters need different directories", zkerror.ErrInvalid)
	}
	c.Prefetch = max(c.Prefetch, 1)
	return items, nil
}

// The directories of items and claims are not containers. If the directory of claims does not
// exist, a consumer of Curator assumes that another consumer has claimed the item. If the numbers
// of items restarted, an old claim could block a new item of the same name.

func (q *Queue) makeItems(ctx context.Context) error {
	return znode.Make(ctx, q.conn, q.path, q.acl, false)
}

func (q *Queue) makeClaims(ctx context.Context) error {
	return znode.Make(ctx, q.conn, q.cfg.Claims, q.acl, false)
}

func (q *Queue) makeDead(ctx context.Context) error {
	return znode.Make(ctx, q.conn, q.cfg.Dead, q.acl, true)
}

// checkDirs returns a znode.OpenError if other clients may change the directory of the items, or that of
// the claims, in which the writer creates its record. See recipe.Setup.CheckDir.
func (q *Queue) checkDirs(ctx context.Context) error {
	if err := q.setup.CheckDir(ctx, q.path, q.makeItems); err != nil {
		return err
	}
	return q.setup.CheckDir(ctx, q.cfg.Claims, q.makeClaims)
}

func (q *Queue) itemPath(name string) string  { return path.Join(q.path, name) }
func (q *Queue) claimPath(name string) string { return path.Join(q.cfg.Claims, name) }

// Len returns the number of items, including claimed and delayed items and unrecognized
// children of the node. The result may be slightly out of date.
func (q *Queue) Len(ctx context.Context) (int, error) {
	n, err := q.countItems(ctx)
	return n, q.wrapError("count", err)
}

func (q *Queue) countItems(ctx context.Context) (int, error) {
	stat, err := request.Read(ctx, q.conn, func() (*zk.Stat, error) {
		_, stat, err := q.conn.Exists(q.path)
		return stat, err
	})
	if err != nil {
		return 0, err
	}
	return int(stat.NumChildren), nil
}

// Err returns the reason why the channel of a Consume was closed before its context was
// done, or nil if that did not happen.
func (q *Queue) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.consumeErr
}

// Close returns claimed items to the queue, completes pending requests, and returns nil
// when no znode of this participant exists any more. Items end with [recipes.ErrClosed],
// channels are closed, and later calls return that error, except for those that only read.
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
		return fmt.Errorf("close %s: %w: %w", q.path, zkerror.ErrUnconfirmed, limit.ErrConfirm)
	}
	if q.closeErr == nil {
		return nil
	}
	return fmt.Errorf("close %s: %w: %w", q.path, zkerror.ErrUnconfirmed, request.Refine(q.conn, q.closeErr))
}

// shutDown is the part of Close that continues in the background.
func (q *Queue) shutDown() {
	defer close(q.closed)
	ended := q.endAllDeliveries(recipes.ErrClosed)
	q.running.Wait() // after this no item is claimed
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
	q.writer.Close()
	<-q.writer.Closed()
	q.closeErr = q.writer.CloseErr()
}

// startCall adds a call to running, unless the queue is closed.
func (q *Queue) startCall() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.closedErr(); err != nil {
		return err
	}
	q.running.Add(1)
	return nil
}

// closedErr returns the reason why items can neither be put nor taken any more, or nil. The
// caller holds mu.
func (q *Queue) closedErr() error {
	if q.closing {
		return recipes.ErrClosed
	}
	return q.connErr
}

func (q *Queue) wakeDispatcher() { notify(q.wake) }

// notify sends on a channel of capacity 1 unless it is full.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wrapError adds the operation and the path to an error, and translates it.
func (q *Queue) wrapError(operation string, err error) error {
	return recipe.Fail(q.conn, operation, q.path, q.translateError(err))
}

// translateError wraps errors of package txn in errors that users know.
func (q *Queue) translateError(err error) error {
	switch {
	case errors.Is(err, txn.ErrClosed):
		return recipes.ErrClosed
	case errors.Is(err, txn.ErrTooLarge):
		return fmt.Errorf("%w: %w", recipes.ErrTooLarge, err)
	case errors.Is(err, txn.ErrOperation):
		return fmt.Errorf("%w: %w", zkerror.ErrInvalid, err)
	}
	return request.Refine(q.conn, err)
}
