// Package txn applies transactions exactly once: if a reply is lost, the transaction is sent again only
// when it is certain that it was not applied and never will be.
//
// Each transaction of a [Writer] also writes an ID that was not used before to the writer's record, an
// ephemeral znode, at the version that is known. If a reply is lost, the ID in the record shows which
// transactions were applied. If the writer then writes another ID, a request that a server receives late
// fails, because it expects the previous version. So every outcome is known as long as the session lives.
// Because the record is deleted with the session, a transaction can also be bound to a session.
//
// A writer sends one request at a time. Transactions that arrive in the meantime share the next request.
//
// [Guarded] sends one transaction that is applied only while a grant lasts.
package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// Errors of transactions, in addition to those of ZooKeeper.
var (
	// ErrSession means that the session to which the transaction was bound is over: nothing was applied.
	ErrSession = errors.New("the session has expired")
	// ErrRecord means that the record to which the transaction was bound was deleted: nothing was applied.
	ErrRecord = errors.New("the record of earlier transactions was deleted")
	// ErrUnknown means that it is unknown whether the transaction was or will be applied: the record was
	// deleted, usually with the session, or the context was done.
	ErrUnknown = errors.New("it is unknown whether the transaction was applied")
	// ErrClosed means that the Writer is closed: nothing was applied.
	ErrClosed = errors.New("the writer is closed")
)

// Config is the configuration of a Writer.
type Config struct {
	connection.Options // the connection, the ACL of the record, and the logger

	Dir string // the directory of the record
	// MakeDir creates Dir if it does not exist. If it is nil, transactions fail with zk.ErrNoNode.
	MakeDir func(ctx context.Context) error

	prefix string // begins the name of the record
}

// Transaction is a transaction to apply. It must not be changed after it was passed to a Writer.
type Transaction struct {
	// Ops are of the types *zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest and
	// *zk.CheckVersionRequest. A transaction without operations confirms that the session lives, and
	// measures the clock.
	Ops []any
	// CreatesDir means that Ops create the directory of the record, which the same request creates if it
	// does not exist. Such a transaction shares no request. Ops must not succeed after they have failed
	// once.
	CreatesDir bool
	// Session is the only session in which the transaction may be applied, or 0.
	Session int64
	// Record is the path of the only record with which the transaction may be applied, or "". As long as it
	// exists, its directory was not deleted and created again.
	Record string
	// Alone means that the transaction shares no request, because its operations could conflict with
	// others.
	Alone bool
	// Sending, if not nil, is called by the writer's goroutine before each request with the transaction. It must
	// be nil if CreatesDir is set.
	Sending func()
}

// Outcome is the outcome of a transaction.
type Outcome struct {
	// Err is nil if the transaction was applied. Otherwise it was not, unless Err is ErrUnknown.
	Err error
	// Failed is the index of the operation to which Err refers, or -1.
	Failed int
	// Responses are the responses to Ops, nil if the reply was lost.
	Responses []zk.MultiResponse
	// Session is the session in which the transaction was applied.
	Session int64
	// Zxid is the zxid of the transaction.
	Zxid int64
	// Record is the path of the record, an ephemeral znode of Session.
	Record string
	// Sent is when the answered request was sent, zero if the reply was lost.
	Sent time.Time
}

// Call is a transaction that was passed to a Writer.
type Call struct {
	t       Transaction
	size    int
	done    chan struct{}
	outcome Outcome
}

// Done returns a channel that is closed when the outcome is known.
func (c *Call) Done() <-chan struct{} { return c.done }

// Outcome blocks until the outcome is known, and returns it.
func (c *Call) Outcome() Outcome {
	<-c.done
	return c.outcome
}

// finish makes o the outcome of the call. It must be called once.
func (c *Call) finish(o Outcome) {
	c.outcome = o
	close(c.done)
}

func (c *Call) fail(err error) { c.finish(Outcome{Err: err, Failed: -1}) }

// Writer applies transactions. Its methods may be called from any goroutine. It runs a goroutine while
// transactions are pending.
type Writer struct {
	// cfg.Conn is nil, because values of a connection.Map, as a shared Writer, must not refer to the connection.
	cfg  Config
	conn weak.Pointer[zk.Conn]

	backoff connection.Backoff // only the writer's goroutine uses it

	mu sync.Mutex
	// record is nil before it is created. Only the writer's goroutine replaces it and uses it without mu.
	record  *record
	pending []*Call
	running bool // the writer's goroutine is running
	closing bool
	// failed is the reason why no transaction can be applied any more: the connection was closed.
	failed error
	clock  clock
	closed chan struct{}
	// closeErr is set before closed is closed.
	closeErr error
}

// New returns a Writer. It sends no request.
func New(cfg Config) *Writer {
	w := &Writer{cfg: cfg, conn: weak.Make(cfg.Conn), closed: make(chan struct{})}
	w.cfg.Conn, w.cfg.prefix = nil, cmp.Or(cfg.prefix, "client-")
	return w
}

// Start starts a transaction. It does not block.
func (w *Writer) Start(t Transaction) *Call { return w.StartAll([]Transaction{t})[0] }

// StartAll starts several independent transactions, which can share the first request. It does not block.
func (w *Writer) StartAll(ts []Transaction) []*Call {
	calls := make([]*Call, len(ts))
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, t := range ts {
		t.Alone = t.Alone || t.CreatesDir
		size, err := Size(t.Ops)
		c := &Call{t: t, size: size, done: make(chan struct{})}
		calls[i] = c
		switch {
		case err != nil:
			c.fail(err)
		case w.failed != nil:
			c.fail(w.failed)
		case w.closing:
			c.fail(ErrClosed)
		default:
			w.pending = append(w.pending, c)
			w.startGoroutine()
		}
	}
	return calls
}

// Run applies a transaction. The error is that of the outcome, or, if ctx is done first, it wraps its
// cause, and ErrUnknown if the transaction may have been sent.
func (w *Writer) Run(ctx context.Context, t Transaction) (Outcome, error) {
	if ctx.Err() != nil {
		return Outcome{Failed: -1}, context.Cause(ctx)
	}
	call := w.Start(t)
	select {
	case <-call.Done():
	case <-ctx.Done():
		if w.Withdraw(call) {
			return Outcome{Failed: -1}, context.Cause(ctx)
		}
		select {
		case <-call.Done():
		default:
			return Outcome{Failed: -1}, fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
		}
	}
	o := call.Outcome()
	return o, o.Err
}

// Confirm confirms that the session lives, and measures the clock, by transactions without operations,
// until an outcome is known or ctx is done.
func (w *Writer) Confirm(ctx context.Context) (Outcome, error) {
	for {
		o, err := w.Run(ctx, Transaction{})
		switch {
		case !errors.Is(err, ErrUnknown):
			return o, err
		case errors.Is(err, connection.ErrConnClosed):
			return o, connection.ErrConnClosed
		case ctx.Err() != nil:
			return o, context.Cause(ctx)
		}
	}
}

// Withdraw removes a call that was not sent yet, and reports whether it has. Then nothing is applied, and
// the outcome is never known.
func (w *Writer) Withdraw(c *Call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.pending, c)
	if i >= 0 {
		w.pending = slices.Delete(w.pending, i, i+1)
	}
	return i >= 0
}

// RecordOf returns the path of the record, or "" if it does not exist or is not one of that session. The
// record may have been deleted since the last transaction.
func (w *Writer) RecordOf(session int64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.record == nil || w.record.session != session {
		return ""
	}
	return w.record.path
}

// Close applies the transactions that were started, rejects others, and deletes the record. It blocks until that is
// done or the connection is closed, and returns why the record may still exist, or nil. It may be called repeatedly.
func (w *Writer) Close() error {
	w.mu.Lock()
	if !w.closing {
		w.closing = true
		w.startGoroutine()
	}
	w.mu.Unlock()
	<-w.closed
	return w.closeErr
}

// LeaderTime returns the present time by the clock of the ensemble's leader and by the local clock. The
// leader's is not known (ok is false) without a reply in the last ten minutes, and if the local clock was
// set or the machine was suspended since then. Confirm measures it.
func (w *Writer) LeaderTime() (leader, local time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	local = time.Now()
	leader, ok = w.clock.at(local)
	return leader, local, ok
}

// startGoroutine starts the goroutine unless it runs. The caller holds mu.
func (w *Writer) startGoroutine() {
	if !w.running {
		w.running = true
		go w.processCalls()
	}
}

// processCalls applies transactions until none is pending.
func (w *Writer) processCalls() {
	conn := w.conn.Value()
	for {
		batch := w.takeBatch(conn)
		switch {
		case batch == nil:
			return
		case conn == nil: // the program does not refer to the connection any more
			w.failBatch(batch, connection.ErrConnClosed)
		default:
			w.applyBatch(conn, batch)
		}
	}
}

// takeBatch removes the calls of the next request from the pending calls, or returns nil if there is none:
// the goroutine must end.
func (w *Writer) takeBatch(conn *zk.Conn) []*Call {
	w.mu.Lock()
	if len(w.pending) == 0 {
		if w.closing {
			w.mu.Unlock()
			w.closeErr = w.deleteLastRecord(conn)
			close(w.closed) // running stays true
			return nil
		}
		w.running = false
		w.mu.Unlock()
		return nil
	}
	defer w.mu.Unlock()
	n, ops, bytes := 0, 0, 0
	for _, c := range w.pending {
		ops += len(c.t.Ops)
		bytes += c.size
		if n > 0 && (c.t.Alone || ops > batchOps || bytes > batchBytes) {
			break
		}
		n++
		if c.t.Alone {
			break
		}
	}
	batch := slices.Clone(w.pending[:n])
	w.pending = slices.Delete(w.pending, 0, n)
	return batch
}

// failBatch finishes calls that were not sent, with an error.
func (w *Writer) failBatch(batch []*Call, err error) {
	if errors.Is(err, connection.ErrConnClosed) {
		w.failPending(err)
	}
	finishBatch(batch, Outcome{Err: err, Failed: -1})
}

// finishBatch finishes every call with the same outcome.
func finishBatch(batch []*Call, o Outcome) {
	for _, c := range batch {
		c.finish(o)
	}
}

// failPending records that the connection was closed, and finishes the pending calls.
func (w *Writer) failPending(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err
	for _, c := range w.pending {
		c.fail(err)
	}
	w.pending = nil
}
