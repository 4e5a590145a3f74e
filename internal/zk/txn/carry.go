package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// carryOut answers all calls of a batch.
func (w *Writer) carryOut(batch []*Call) {
	ctx := context.Background() // the connection's end is the only one
	for len(batch) > 0 {
		if err := w.ready(ctx); err != nil {
			w.refuse(batch, err)
			return
		}
		r := w.register
		batch = slices.DeleteFunc(batch, func(c *Call) bool {
			if c.Session == 0 || c.Session == r.session {
				return false
			}
			c.fail(ErrSession)
			return true
		})
		if len(batch) == 0 {
			return
		}
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
		responses, err := w.Conn.Multi(ops...)
		switch {
		case err == nil:
			stat := responses[0].Stat
			r.version = stat.Version
			w.tell(stat.Mtime, sent)
			deliver(batch, responses[1:], Outcome{Failed: -1, Session: r.session, Zxid: stat.Mzxid, Register: r.path, Sent: sent})
			return
		case errors.Is(err, zk.ErrNoServer): // it was never sent
		case request.Transient(err):
			switch v, stat, err := w.inquire(ctx, id); {
			case v == carriedOut:
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
			_ = request.Pause(ctx, w.backoff.Next()) // the context never ends
		case len(responses) > 0 && responses[0].Error != nil:
			// The register has gone with its session, or somebody's hand is in
			// it: it serves no more, and nothing was applied.
			w.register = nil
		default:
			batch = failOne(batch, responses, err)
		}
	}
}

// ready sees to a register that can be used.
func (w *Writer) ready(ctx context.Context) error {
	if w.register != nil && w.register.version < renewAt {
		return nil
	}
	old := w.register
	if err := w.open(ctx); err != nil {
		return err
	}
	if old != nil {
		_ = w.drop(ctx, old.path) // it goes with the session otherwise
	}
	return nil
}

// refuse answers a batch of which nothing was sent.
func (w *Writer) refuse(batch []*Call, err error) {
	if errors.Is(err, zkerror.ErrConnClosed) {
		w.end(err)
	}
	give(batch, Outcome{Err: err, Failed: -1})
}

// deliver gives each call its own responses.
func deliver(batch []*Call, responses []zk.MultiResponse, o Outcome) {
	for _, c := range batch {
		o.Responses, responses = responses[:len(c.Ops):len(c.Ops)], responses[len(c.Ops):]
		c.finish(o)
	}
}

// failOne answers the call that made the transaction fail, and returns those that
// are left to be carried out. Operations before the one that failed have no
// error, those after it one that says just that.
func failOne(batch []*Call, responses []zk.MultiResponse, err error) []*Call {
	failed := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return r.Error != nil })
	at := failed - 1 // the first is the register's
	for i, c := range batch {
		if at >= 0 && at < len(c.Ops) {
			c.finish(Outcome{Err: responses[failed].Error, Failed: at})
			return slices.Delete(batch, i, i+1)
		}
		at -= len(c.Ops)
	}
	give(batch, Outcome{Err: err, Failed: -1}) // it is about the whole
	return nil
}
