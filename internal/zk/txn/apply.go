package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// applyBatch applies the transactions of a batch and finishes all calls of the batch.
//
// After a lost reply the record decides whether the batch is sent again, and a call that has failed is removed from
// the batch, so applyBatch repeats requests itself, without connection.Read.
func (w *Writer) applyBatch(conn *zk.Conn, batch []*Call) {
	ctx := context.Background() // the requests return at the latest when the owner closes the connection
	for len(batch) > 0 {
		if batch[0].t.CreatesDir && w.record == nil {
			if err := w.createDir(ctx, conn, batch[0]); err != nil {
				w.failBatch(batch, err)
			}
			return
		}
		created, err := w.ensureRecord(ctx, conn)
		if err != nil {
			w.failBatch(batch, err)
			return
		}
		if batch = w.finishWithoutRequest(batch, created); len(batch) == 0 {
			return
		}
		r := w.record
		ops := []any{&zk.SetDataRequest{Path: r.path, Data: r.nextID(), Version: r.version}}
		id := r.id
		for _, c := range batch {
			ops = append(ops, c.t.Ops...)
			if c.t.Sending != nil {
				c.t.Sending()
			}
		}
		sent := time.Now()
		responses, err := conn.Multi(ops...)
		switch {
		case err == nil:
			stat := responses[0].Stat
			r.version = stat.Version
			w.updateClock(stat.Mtime, sent)
			finishApplied(batch, responses[1:], Outcome{Failed: -1, Session: r.session, Zxid: stat.Mzxid, Record: r.path, Sent: sent})
			return
		case errors.Is(err, zk.ErrNoServer): // the client has not sent the request
		case connection.Transient(err):
			stat, err := w.findOutcome(ctx, conn, id)
			switch {
			case stat != nil:
				finishBatch(batch, Outcome{Failed: -1, Session: r.session, Zxid: stat.Mzxid, Record: r.path})
				return
			case err != nil:
				w.setRecord(nil)
				w.cfg.Log.Warn("outcome of a transaction is unknown", "record", r.path, "err", err)
				o := Outcome{Err: ErrUnknown, Failed: -1, Session: r.session}
				if errors.Is(err, connection.ErrConnClosed) {
					o.Err = fmt.Errorf("%w: %w", ErrUnknown, err)
					w.failPending(err)
				}
				finishBatch(batch, o)
				return
			}
			_ = limit.Pause(ctx, w.backoff.Next()) // the error is nil, because the context is never done
		case len(responses) > 0 && responses[0].Error != nil:
			// The servers have deleted the record with its session, or another client has written to the record.
			w.setRecord(nil)
		default:
			batch = finishFailed(batch, responses, err)
		}
	}
}

// ensureRecord creates a record if there is none, or if the version of the record will overflow soon.
func (w *Writer) ensureRecord(ctx context.Context, conn *zk.Conn) (created bool, err error) {
	if w.record != nil && w.record.version < maxVersion {
		return false, nil
	}
	old := w.record
	if err := w.createRecord(ctx, conn); err != nil {
		return false, err
	}
	if old != nil {
		_ = deleteRecord(ctx, conn, old.path) // if the deletion fails, the servers delete the old record with the session
	}
	return true, nil
}

// finishWithoutRequest finishes the calls whose fields Session or Record do not match the record, and returns the
// other calls. If the record was just created, it also finishes the calls without operations, because the create
// has confirmed the session.
func (w *Writer) finishWithoutRequest(batch []*Call, created bool) []*Call {
	r := w.record
	return slices.DeleteFunc(batch, func(c *Call) bool {
		switch {
		case c.t.Session != 0 && c.t.Session != r.session:
			c.fail(ErrSession)
		case c.t.Record != "" && c.t.Record != r.path:
			c.fail(ErrRecord)
		case len(c.t.Ops) == 0 && created && !r.sent.IsZero():
			c.finish(Outcome{Failed: -1, Session: r.session, Zxid: r.zxid, Record: r.path, Sent: r.sent})
		default:
			return false
		}
		return true
	})
}

// finishApplied finishes each call with the responses to its operations.
func finishApplied(batch []*Call, responses []zk.MultiResponse, o Outcome) {
	for _, c := range batch {
		n := len(c.t.Ops)
		o.Responses, responses = responses[:n:n], responses[n:]
		c.finish(o)
	}
}

// finishFailed finishes the call because of which the transaction failed, and returns the other calls. If the error
// concerns the whole request, it finishes all calls.
func finishFailed(batch []*Call, responses []zk.MultiResponse, err error) []*Call {
	first := 1 // the operations of the calls begin at index 1, because the first operation writes the record
	for i, c := range batch {
		if o := failedOutcome(responses, first, len(c.t.Ops), err); o.Failed >= 0 {
			c.finish(o)
			return slices.Delete(batch, i, i+1)
		}
		first += len(c.t.Ops)
	}
	finishBatch(batch, Outcome{Err: err, Failed: -1})
	return nil
}

// failedOutcome returns the outcome of a failed transaction for a call with n operations, whose responses begin at
// the index first. If another operation was the first to fail, Failed is -1 and Err is err.
func failedOutcome(responses []zk.MultiResponse, first, n int, err error) Outcome {
	failed := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return r.Error != nil })
	if failed < first || failed >= first+n {
		return Outcome{Err: err, Failed: -1}
	}
	return Outcome{Err: responses[failed].Error, Failed: failed - first}
}
