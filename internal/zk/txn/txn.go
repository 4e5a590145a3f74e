// Package txn carries out transactions once: a transaction whose answer was
// lost is not repeated before it is certain that it has not been, and never
// will be, carried out.
//
// All transactions of one Writer go through its register, an ephemeral znode.
// Each of them also writes to the register, a fresh id at the version that is
// known. When an answer is lost the id that is found there says what was carried
// out; and a later write of another id makes a transaction that a server reads
// late fail at its version. As long as the session lives nothing remains
// unknown. Because the register goes with the session, a transaction can also be
// bound to one.
//
// Transactions are sent one at a time. Those that come meanwhile share the next
// one.
package txn

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
)

// What becomes of a transaction, besides ZooKeeper's own errors.
var (
	// ErrSession: the session to which it was bound is over. Nothing was
	// applied.
	ErrSession = errors.New("the session has expired")
	// ErrUnknown: the register has gone, with the session or by somebody's
	// hand, before it told whether the transaction was carried out.
	ErrUnknown = errors.New("it is unknown whether the transaction was applied")
	// ErrClosed: the Writer is closed. Nothing was applied.
	ErrClosed = errors.New("the writer is closed")
	// ErrTooLarge: a server would close the connection at a request of this
	// size. Nothing was sent.
	ErrTooLarge = errors.New("larger than ZooKeeper accepts")
	// ErrOperation: an operation is of a type that a transaction cannot have.
	// Nothing was sent.
	ErrOperation = errors.New("not an operation of a transaction")
)

// Config says where the register is.
type Config struct {
	Conn *zk.Conn
	Dir  string // of registers
	ACL  []zk.ACL
	// MakeDir creates Dir where it is missing.
	MakeDir func(ctx context.Context) error
	Log     *slog.Logger
}

// Transaction is what to carry out. Nobody may change it any more.
type Transaction struct {
	// Ops are *zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest and
	// *zk.CheckVersionRequest. Without any it asks for Outcome.Time and a proof
	// of the session's life.
	Ops []any
	// Session is the only session in which it may be carried out, 0 for any.
	Session int64
	// Alone: it shares no request, because its operations could get into those
	// of others.
	Alone bool
	// Sending is called by the writer's goroutine right before a request with it is
	// sent, each time. nil for nothing.
	Sending func()
}

// Outcome is what has become of a transaction.
type Outcome struct {
	// Err is nil when it was carried out. Otherwise nothing was applied, unless
	// it is ErrUnknown.
	Err error
	// Failed is the index of the operation that Err is about, or -1.
	Failed int
	// Responses are those to Ops; nil when the answer was lost, and the register
	// has told.
	Responses []zk.MultiResponse
	Session   int64     // in which it was carried out
	Zxid      int64     // the transaction's own
	Register  string    // path of the register, an ephemeral znode of Session
	Sent      time.Time // of the request that was answered; zero when the answer was lost
}

// Call is a transaction on its way.
type Call struct {
	Transaction
	size    int
	done    chan struct{}
	outcome Outcome
}

// Done is closed when the outcome is known.
func (c *Call) Done() <-chan struct{} { return c.done }

// Outcome waits for the outcome.
func (c *Call) Outcome() Outcome {
	<-c.done
	return c.outcome
}

func (c *Call) finish(o Outcome) {
	c.outcome = o
	close(c.done)
}

func (c *Call) fail(err error) { c.finish(Outcome{Err: err, Failed: -1}) }

// Writer carries out transactions. Its methods may be called from any goroutine.
// Its own goroutine runs while there is something to do.
type Writer struct {
	Config
	register *register       // nil without one; only the goroutine uses it
	backoff  request.Backoff // likewise

	mu       sync.Mutex
	pending  []*Call
	running  bool
	closing  bool
	over     error // the connection was closed: nothing is carried out any more
	clock    clock
	finished chan struct{}
	err      error // what Close has met, set before finished is closed
}

// New returns a Writer. It sends no request.
func New(cfg Config) *Writer {
	return &Writer{Config: cfg, finished: make(chan struct{})}
}

// Do has a transaction carried out. It does not wait.
func (w *Writer) Do(t Transaction) *Call { return w.DoAll([]Transaction{t})[0] }

// DoAll has several carried out, each for itself, which share requests from the
// first on. It does not wait.
func (w *Writer) DoAll(ts []Transaction) []*Call {
	calls := make([]*Call, len(ts))
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, t := range ts {
		c := &Call{Transaction: t, done: make(chan struct{})}
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

// Withdraw takes back a call that was not sent yet, and reports whether it could:
// nothing of it is applied then, and its outcome never comes.
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

// Close lets what was asked for be carried out, refuses anything further, and
// deletes the register. It does not wait: Closed and CloseErr tell. It may be
// called again.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing {
		w.closing = true
		w.start()
	}
}

// Closed is closed when nothing of the Writer is left, or nothing more can be done
// for that.
func (w *Writer) Closed() <-chan struct{} { return w.finished }

// CloseErr is, after Closed, why something may be left; nil if nothing is.
func (w *Writer) CloseErr() error { return w.err }

// Offset is how far the clock of the ensemble's leader was ahead of this
// process's in the latest answer; ok is false before there was one.
func (w *Writer) Offset() (offset time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock.offset, w.clock.known
}

// start runs the goroutine unless it runs. The caller holds mu.
func (w *Writer) start() {
	if !w.running {
		w.running = true
		go w.run()
	}
}

func (w *Writer) run() {
	for {
		batch := w.next()
		if batch == nil {
			return
		}
		w.carryOut(batch)
	}
}

// next takes the calls of the next batch. Without any the goroutine ends: nil.
func (w *Writer) next() []*Call {
	w.mu.Lock()
	if len(w.pending) == 0 {
		if w.closing {
			w.mu.Unlock()
			w.err = w.remove()
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

// give answers every call with what o says.
func give(batch []*Call, o Outcome) {
	for _, c := range batch {
		c.finish(o)
	}
}

// end says that the connection was closed, and answers what waits.
func (w *Writer) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = err
	for _, c := range w.pending {
		c.fail(err)
	}
	w.pending = nil
}
