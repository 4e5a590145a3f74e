// Package txn applies transactions exactly once: if a reply is lost, a writer sends the transaction again only when
// it is certain that the servers have not applied it and never will.
//
// Each transaction of a [Writer] also writes an ID that was not used before into the writer's record, an ephemeral
// znode, and expects the last known version of the record. If a reply is lost, the ID in the record shows which
// transactions the servers have applied. If the writer then writes another ID, a request that a server reads later
// fails, because the request expects the previous version. So every outcome is known as long as the session lives.
// Because the record is deleted with the session, a transaction can also be limited to one session.
//
// A writer sends one request at a time. Transactions that are started in the meantime share the next request.
//
// [Guarded] sends one transaction that the servers apply only while a grant lasts.
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

// Errors of transactions, in addition to the errors of ZooKeeper.
var (
	// ErrSession means that the session in the field Transaction.Session has ended. The servers have applied
	// nothing.
	ErrSession = errors.New("the session has expired")
	// ErrRecord means that the record in the field Transaction.Record was deleted. The servers have applied
	// nothing.
	ErrRecord = errors.New("the record of earlier transactions was deleted")
	// ErrUnknown means that the servers may have applied the transaction, or may still apply it: the record was
	// deleted, usually with the session, or the context was done.
	ErrUnknown = errors.New("it is unknown whether the transaction was applied")
	// ErrClosed means that the Writer is closed. The servers have applied nothing.
	ErrClosed = errors.New("the writer is closed")
)

// Config is the configuration of a Writer.
type Config struct {
	connection.Options // the connection, the ACL of the record, and the logger

	Dir string // the directory of the record
	// MakeDir creates Dir if Dir does not exist. If MakeDir is nil and Dir does not exist, transactions fail with
	// zk.ErrNoNode.
	MakeDir func(ctx context.Context) error

	prefix string // the beginning of the record's name
}

// Transaction is a transaction to apply. The caller must not change a Transaction after passing it to a Writer.
type Transaction struct {
	// Ops contains operations of the types *zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest and
	// *zk.CheckVersionRequest. A transaction without operations confirms that the session lives, and measures the
	// clock of the leader.
	Ops []any
	// CreatesDir means that Ops create the directory of the record. The same request creates the record if there is
	// none. Such a transaction shares no request. Ops must not be able to succeed after they have failed once.
	CreatesDir bool
	// Session is the only session in which the servers may apply the transaction; 0 permits any session.
	Session int64
	// Record is the path of the only record with which the servers may apply the transaction; "" permits any
	// record. As long as the record exists, its directory was not deleted and created again.
	Record string
	// Alone means that the transaction shares no request, because its operations could conflict with other
	// transactions.
	Alone bool
	// Sending, if not nil, is called by the writer's goroutine before each request that contains the transaction.
	// It must be nil if CreatesDir is set.
	Sending func()
}

// Outcome is the outcome of a transaction.
type Outcome struct {
	// Err is nil if the servers have applied the transaction. If Err is ErrUnknown, they may have applied it. With
	// other errors they have not.
	Err error
	// Failed is the index of the operation to which Err refers, or -1.
	Failed int
	// Responses contains the responses to Ops. It is nil if the reply was lost.
	Responses []zk.MultiResponse
	// Session is the session in which the servers have applied the transaction.
	Session int64
	// Zxid is the zxid of the transaction.
	Zxid int64
	// Record is the path of the record, an ephemeral znode of Session.
	Record string
	// Sent is when the client has sent the request that was answered, or zero if the reply was lost.
	Sent time.Time
}

// Call is a transaction that the caller has passed to a Writer.
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

// finish sets the outcome of the call. It must be called once.
func (c *Call) finish(o Outcome) {
	c.outcome = o
	close(c.done)
}

func (c *Call) fail(err error) { c.finish(Outcome{Err: err, Failed: -1}) }

// Writer applies transactions. Its methods may be called from any goroutine. A Writer runs a goroutine while
// transactions are pending.
type Writer struct {
	// cfg.Conn is nil, because the values of a connection.Map, such as a shared Writer, must not refer to their
	// connection.
	cfg  Config
	conn weak.Pointer[zk.Conn]

	backoff connection.Backoff // only the writer's goroutine uses it

	mu sync.Mutex
	// record is nil before the writer has created a record. Only the writer's goroutine replaces record, and may
	// use it without mu.
	record  *record
	pending []*Call
	running bool // the writer's goroutine is running
	closing bool
	// failed is the reason why the writer can apply no transaction any more: the connection was closed.
	failed error
	clock  clock
	closed chan struct{}
	// closeErr is the result of Close. It is set before closed is closed.
	closeErr error
}

// New returns a Writer, and sends no request.
func New(cfg Config) *Writer {
	w := &Writer{cfg: cfg, conn: weak.Make(cfg.Conn), closed: make(chan struct{})}
	w.cfg.Conn, w.cfg.prefix = nil, cmp.Or(cfg.prefix, "client-")
	return w
}

// Start starts a transaction, and does not block.
func (w *Writer) Start(t Transaction) *Call { return w.StartAll([]Transaction{t})[0] }

// StartAll starts several independent transactions, which can share the first request. StartAll does not block.
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

// Run applies a transaction, and returns its outcome and the error of the outcome. If ctx is done first, the error
// wraps the cause of ctx, and also ErrUnknown if the writer may have sent the transaction.
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

// Confirm applies transactions without operations until an outcome is known or ctx is done. The outcome confirms
// that the session lives, and measures the clock of the leader.
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

// Withdraw removes a call that the writer has not sent yet, and reports whether it has done so. The servers then
// apply nothing, and the outcome of the call is never known.
func (w *Writer) Withdraw(c *Call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.pending, c)
	if i >= 0 {
		w.pending = slices.Delete(w.pending, i, i+1)
	}
	return i >= 0
}

// RecordOf returns the path of the record, or "" if there is no record or the record belongs to another session.
// The servers may have deleted the record since the last transaction.
func (w *Writer) RecordOf(session int64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.record == nil || w.record.session != session {
		return ""
	}
	return w.record.path
}

// Close applies the transactions that were started, rejects others, and deletes the record. Close blocks until this
// is done or the connection is closed. It returns nil, or the reason why the record may still exist. It may be
// called repeatedly.
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

// LeaderTime returns the present time of the ensemble's leader, as estimated, and of the local clock. ok is false
// if there is no estimate: the writer has received no reply in the last ten minutes, or the local clock was set or
// the machine was suspended since the last reply. Confirm makes a new measurement.
func (w *Writer) LeaderTime() (leader, local time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	local = time.Now()
	leader, ok = w.clock.estimate(local)
	return leader, local, ok
}

// startGoroutine starts the writer's goroutine unless it runs. The caller holds mu.
func (w *Writer) startGoroutine() {
	if !w.running {
		w.running = true
		go w.processCalls()
	}
}

// processCalls applies transactions until no transaction is pending.
func (w *Writer) processCalls() {
	conn := w.conn.Value()
	for {
		batch := w.takeBatch(conn)
		switch {
		case batch == nil:
			return
		case conn == nil: // the program does not reference the connection any more
			w.failBatch(batch, connection.ErrConnClosed)
		default:
			w.applyBatch(conn, batch)
		}
	}
}

// takeBatch removes the calls for the next request from the pending calls and returns them. It returns nil if no
// call is pending; the goroutine must then end, so takeBatch resets running, or completes Close.
func (w *Writer) takeBatch(conn *zk.Conn) []*Call {
	w.mu.Lock()
	if len(w.pending) == 0 {
		if w.closing {
			w.mu.Unlock()
			w.closeErr = w.deleteLastRecord(conn)
			close(w.closed) // running remains true, so that no other goroutine starts
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

// failBatch finishes calls that the writer has not sent, with an error.
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

// failPending records that the connection was closed, and finishes the pending calls with err.
func (w *Writer) failPending(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err
	for _, c := range w.pending {
		c.fail(err)
	}
	w.pending = nil
}
