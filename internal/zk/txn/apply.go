package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// apply applies the transactions of a batch and finishes all of its calls.
func (w *Writer) apply(conn *zk.Conn, batch []*Call) {
	ctx := context.Background() // only the end of the connection ends this
	for len(batch) > 0 {
		if batch[0].CreatesDir && w.register == nil {
			if err := w.open(ctx, conn, batch[0]); err != nil {
				w.refuse(batch, err)
			}
			return
		}
		opened, err := w.ready(ctx, conn)
		if err != nil {
			w.refuse(batch, err)
			return
		}
		if batch = w.check(batch, opened); len(batch) == 0 {
			return
		}
		r := w.register
		data := r.next()
		id := r.id
		ops := []any{&zk.SetDataRequest{Path: r.path, Data: data, Version: r.version}}
		for _, c := range batch {
			ops = append(ops, c.Ops...)
		}
		for _, c := range batch {
			if c.Sending != nil {
				c.Sending()
			}
		}
		sent := time.Now()
		responses, err := conn.Multi(ops...)
		switch {
		case err == nil:
			stat := responses[0].Stat
			r.version = stat.Version
			w.told(stat.Mtime, sent)
			deliver(batch, responses[1:], Outcome{Failed: -1, Session: r.session, Zxid: stat.Mzxid, Register: r.path, Sent: sent})
			return
		case errors.Is(err, zk.ErrNoServer): // the request was not sent
		case request.Transient(err):
			switch v, stat, err := w.inquire(ctx, conn, id); {
			case v == applied:
				give(batch, Outcome{Failed: -1, Session: r.session, Zxid: stat.Mzxid, Register: r.path})
				return
			case v == unknown:
				w.Log.Warn("outcome of a transaction is unknown", "register", r.path, "err", err)
				o := Outcome{Err: ErrUnknown, Failed: -1, Session: r.session}
				if errors.Is(err, zkerror.ErrConnClosed) {
					o.Err = fmt.Errorf("%w: %w", ErrUnknown, err)
					w.end(err)
				}
				give(batch, o)
				return
			}
			_ = request.Pause(ctx, w.backoff.Next()) // the context is never done
		case len(responses) > 0 && responses[0].Error != nil:
			// The register was deleted with its session, or another client has written to it:
			// nothing was applied.
			w.use(nil)
		default:
			batch = failOne(batch, responses, err)
		}
	}
}

// ready creates a register if there is none, or if its version will overflow soon.
func (w *Writer) ready(ctx context.Context, conn *zk.Conn) (opened bool, err error) {
	if w.register != nil && w.register.version < renewAt {
		return false, nil
	}
	old := w.register
	if err := w.open(ctx, conn, nil); err != nil {
		return false, err
	}
	if old != nil {
		_ = w.drop(ctx, conn, old.path) // otherwise it is deleted with the session
	}
	return true, nil
}

// check finishes the calls that are bound to another session or register and, if the register was
// created now, those without operations. It returns the others.
func (w *Writer) check(batch []*Call, opened bool) []*Call {
	r := w.register
	return slices.DeleteFunc(batch, func(c *Call) bool {
		switch {
		case c.Session != 0 && c.Session != r.session:
			c.fail(ErrSession)
		case c.Register != "" && c.Register != r.path:
			c.fail(ErrRegister)
		case len(c.Ops) == 0 && opened && !r.sent.IsZero():
			c.finish(Outcome{Failed: -1, Session: r.session, Zxid: r.zxid, Register: r.path, Sent: r.sent})
		default:
			return false
		}
		return true
	})
}

// deliver finishes each call with its own responses.
func deliver(batch []*Call, responses []zk.MultiResponse, o Outcome) {
	for _, c := range batch {
		o.Responses, responses = responses[:len(c.Ops):len(c.Ops)], responses[len(c.Ops):]
		c.finish(o)
	}
}

// failOne finishes the call because of which the transaction failed, and returns the others, which
// are sent again.
func failOne(batch []*Call, responses []zk.MultiResponse, err error) []*Call {
	failed := firstError(responses)
	at := failed - 1 // the first operation is that on the register
	for i, c := range batch {
		if at >= 0 && at < len(c.Ops) {
			c.finish(Outcome{Err: responses[failed].Error, Failed: at})
			return slices.Delete(batch, i, i+1)
		}
		at -= len(c.Ops)
	}
	give(batch, Outcome{Err: err, Failed: -1}) // the error concerns the whole request
	return nil
}

// firstError returns the index of the operation because of which a transaction failed, or -1. The
// operations before it have no error. Those after it have an error that says only that another
// operation failed.
func firstError(responses []zk.MultiResponse) int {
	return slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return r.Error != nil })
}
