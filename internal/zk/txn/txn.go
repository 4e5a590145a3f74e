// Package txn applies transactions exactly once: a transaction whose reply was lost is not
// repeated before it is certain that it was not applied and never will be.
//
// All transactions of a [Writer] write to its register, an ephemeral znode, as well: an ID that
// was not used before, with the version that is known. If a reply is lost, the ID in the register
// shows which transactions were applied, and writing another ID lets a request that a server
// receives late fail because of the version. So no outcome remains unknown while the session
// lives. Because the register is deleted with the session, a transaction can also be bound to a
// session.
//
// Transactions are sent one request at a time. Those that arrive in the meantime share the next
// request.
package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Errors of transactions, in addition to those of ZooKeeper.
var (
	// ErrSession means that the session to which the transaction was bound is over. Nothing was
	// applied.
	ErrSession = errors.New("the session has expired")
	// ErrRegister means that the register to which the transaction was bound was deleted.
	// Nothing was applied.
	ErrRegister = errors.New("the record of earlier transactions was deleted")
	// ErrUnknown means that it is unknown whether the transaction was or will be applied: the
	// register was deleted, usually with the session, or the context was done.
	ErrUnknown = errors.New("it is unknown whether the transaction was applied")
	// ErrClosed means that the Writer is closed. Nothing was applied.
	ErrClosed = errors.New("the writer is closed")
	// ErrTooLarge means that a server would close the connection because of a request of this
	// size. Nothing was sent.
	ErrTooLarge = errors.New("larger than ZooKeeper accepts")
	// ErrOperation means that an operation has a type that a transaction cannot contain. Nothing
	// was sent.
	ErrOperation = errors.New("not an operation of a transaction")
)

// Config is the configuration of a Writer.
type Config struct {
	Conn   *zk.Conn
	Dir    string // the directory of the register
	Prefix string // of the register's name, "client-" if it is empty
	ACL    []zk.ACL
	// MakeDir creates Dir if it does not exist. If MakeDir is nil, transactions fail with
	// zk.ErrNoNode instead.
	MakeDir func(ctx context.Context) error
	Log     *slog.Logger
}

// Transaction is a transaction to apply. It must not be changed after it was passed to a Writer.
type Transaction struct {
	// Ops are of the types *zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest and
	// *zk.CheckVersionRequest. A transaction without operations shows that the session lives,
	// and measures the clock.
	Ops []any
	// CreatesDir means that Ops create the directory of the register. If the Writer has no
	// register, the same request creates one. Such a transaction shares no request. Ops must not
	// succeed after they have failed once.
	CreatesDir bool
	// Session is the only session in which the transaction may be applied, or 0 for any.
	Session int64
	// Register is the path of the only register with which the transaction may be applied, or
	// "" for any. Since that register was created, its directory cannot have been deleted and
	// created again.
	Register string
	// Alone means that the transaction shares no request, because its operations could conflict
	// with those of others.
	Alone bool
	// Sending, if it is not nil, is called by the writer's goroutine before each request that
	// contains the transaction is sent.
	Sending func()
}

// Outcome is the outcome of a transaction.
type Outcome struct {
	// Err is nil if the transaction was applied. Otherwise nothing was applied, unless Err is
	// ErrUnknown.
	Err error
	// Failed is the index of the operation that Err is about, or -1.
	Failed int
	// Responses are the responses to Ops. They are nil if the reply was lost and the register
	// shows that the transaction was applied.
	Responses []zk.MultiResponse
	Session   int64     // the session in which it was applied
	Zxid      int64     // of the transaction
	Register  string    // the path of the register, an ephemeral znode of Session
	Sent      time.Time // when the request was sent whose reply was received; zero if it was lost
}

// Call is a transaction that was passed to a Writer.
type Call struct {
	Transaction
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

func (c *Call) finish(o Outcome) {
	c.outcome = o
	close(c.done)
}

func (c *Call) fail(err error) { c.finish(Outcome{Err: err, Failed: -1}) }

// Writer applies transactions. Its methods may be called from any goroutine. Its own goroutine
// runs while there are transactions to apply.
type Writer struct {
	Config
	// Config.Conn is nil: the Writer of a directory is attached to its connection, which it must
	// not keep in memory.
	conn     weak.Pointer[zk.Conn]
	register *register       // nil without a register; used by the writer's goroutine only
	backoff  request.Backoff // used by the writer's goroutine only

	mu       sync.Mutex
	path     string // of register
	pending  []*Call
	running  bool
	closing  bool
	over     error // why no transaction can be applied any more: the connection was closed
	clock    clock
	finished chan struct{}
	err      error // the result of CloseErr, set before finished is closed
}

// New returns a Writer. It sends no request.
func New(cfg Config) *Writer {
	w := &Writer{Config: cfg, conn: weak.Make(cfg.Conn), finished: make(chan struct{})}
	w.Conn = nil
	return w
}

// Do starts a transaction. It does not block.
func (w *Writer) Do(t Transaction) *Call { return w.DoAll([]Transaction{t})[0] }

// DoAll starts several independent transactions, which can share the first request. It does not
// block.
func (w *Writer) DoAll(ts []Transaction) []*Call {
	calls := make([]*Call, len(ts))
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, t := range ts {
		c := &Call{Transaction: t, done: make(chan struct{})}
		c.Alone = c.Alone || c.CreatesDir
		calls[i] = c
		var err error
		c.size, err = size(t.Ops)
		switch {
		case err != nil:
			c.fail(err)
		case w.over != nil:
			c.fail(w.over)
		case w.closing:
			c.fail(ErrClosed)
		default:
			w.pending = append(w.pending, c)
			w.start()
		}
	}
	return calls
}

// Run applies a transaction, and blocks until its outcome is known or ctx is done. The error is
// that of the outcome, or it wraps the cause of ctx, and ErrUnknown if the transaction may have
// been sent.
func (w *Writer) Run(ctx context.Context, t Transaction) (Outcome, error) {
	if ctx.Err() != nil {
		return Outcome{Failed: -1}, context.Cause(ctx)
	}
	call := w.Do(t)
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

// Withdraw removes a call that was not sent yet, and reports whether it could: then nothing of it
// is applied, and its outcome is never known.
func (w *Writer) Withdraw(c *Call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, p := range w.pending {
		if p == c {
			w.pending = append(w.pending[:i], w.pending[i+1:]...)
			return true
		}
	}
	return false
}

// Register returns the path of the register, or "" if the Writer has none. The register may have
// been deleted since the last transaction.
func (w *Writer) Register() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.path
}

// use replaces the register by r, which may be nil.
func (w *Writer) use(r *register) {
	w.register = r
	w.mu.Lock()
	defer w.mu.Unlock()
	w.path = ""
	if r != nil {
		w.path = r.path
	}
}

// Close applies the transactions that were started, rejects others, and deletes the register. It
// does not block: Closed and CloseErr report the result. It may be called repeatedly.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing {
		w.closing = true
		w.start()
	}
}

// Closed returns a channel that is closed when the register was deleted or cannot be deleted.
func (w *Writer) Closed() <-chan struct{} { return w.finished }

// CloseErr returns why the register may still exist, or nil. It must be called after Closed.
func (w *Writer) CloseErr() error { return w.err }

// Offset returns by how much the clock of the ensemble's leader was ahead of this process's clock
// in the latest reply; ok is false before the first reply.
func (w *Writer) Offset() (offset time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock.offset, w.clock.known
}

// start starts the goroutine unless it runs. The caller holds mu.
func (w *Writer) start() {
	if !w.running {
		w.running = true
		go w.run()
	}
}

func (w *Writer) run() {
	conn := w.conn.Value()
	for {
		batch := w.next(conn)
		switch {
		case batch == nil:
			return
		case conn == nil: // not referenced by the program any more
			w.refuse(batch, zkerror.ErrConnClosed)
		default:
			w.apply(conn, batch)
		}
	}
}

// next returns the calls of the next batch. Without any it returns nil, and the goroutine ends.
func (w *Writer) next(conn *zk.Conn) []*Call {
	w.mu.Lock()
	if len(w.pending) == 0 {
		if w.closing {
			w.mu.Unlock()
			w.err = w.remove(conn)
			close(w.finished) // running stays true
			return nil
		}
		w.running = false
		w.mu.Unlock()
		return nil
	}
	defer w.mu.Unlock()
	n, ops, bytes := 0, 0, 0
	for _, c := range w.pending {
		ops += len(c.Ops)
		bytes += c.size
		if n > 0 && (c.Alone || ops > batchOps || bytes > batchBytes) {
			break
		}
		n++
		if c.Alone {
			break
		}
	}
	batch := append([]*Call(nil), w.pending[:n]...)
	rest := copy(w.pending, w.pending[n:])
	clear(w.pending[rest:])
	w.pending = w.pending[:rest]
	return batch
}

// refuse finishes the calls of a batch of which nothing was sent, or whose outcome is unknown.
func (w *Writer) refuse(batch []*Call, err error) {
	if errors.Is(err, zkerror.ErrConnClosed) {
		w.end(err)
	}
	give(batch, Outcome{Err: err, Failed: -1})
}

// give finishes every call with the same outcome.
func give(batch []*Call, o Outcome) {
	for _, c := range batch {
		c.finish(o)
	}
}

// end records that the connection was closed, and finishes the pending calls.
func (w *Writer) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = err
	for _, c := range w.pending {
		c.fail(err)
	}
	w.pending = nil
}
