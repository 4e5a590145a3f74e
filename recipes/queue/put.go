package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// PutOption sets the position of an item in the queue.
type PutOption func(*putting)

type putting struct {
	placement
	at time.Time
}

// Priority puts an item before all items with greater numbers. n is a 32-bit integer, or 0
// to 999 with [recipes.Kazoo]. Items without a priority come before all others; with
// [recipes.Kazoo] they have priority 100. Curator's DistributedPriorityQueue can share a
// queue of such items.
func Priority(n int) PutOption {
	return func(p *putting) { p.priority, p.hasPriority = n, true }
}

// At delays an item until t, with a resolution of one millisecond. The delay is measured by
// the clock of the ensemble's leader, so the clocks of producers and consumers do not have
// to agree. A time in the past does not delay the item. Curator's DistributedDelayQueue can
// share a queue of such items, but uses the clocks of its clients. An item cannot have both
// a time and a priority, and cannot have a time with [recipes.Kazoo].
func At(t time.Time) PutOption { return func(p *putting) { p.at = t } }

// maxItem is how large an item's data may be: less than what ZooKeeper accepts,
// so that it can become a dead letter.
const maxItem = 1<<20 - 12<<10

// Put appends an item. If it returns nil, the item was added exactly once, even if
// connections were lost.
//
// The item was not added if the error is [ErrFull], [ErrTooLarge], [ErrExhausted],
// [recipes.ErrPermission] or [recipes.ErrInvalidOption], or the cause of ctx alone, which
// means that ctx was done before the request was sent. The error wraps
// [recipes.ErrUnconfirmed] if ctx was done while the request was in flight, or if the
// session ended or the connection was closed before the reply: the item may have been
// added, or, after ctx was done, may still be added.
func (q *Queue) Put(ctx context.Context, data []byte, opts ...PutOption) error {
	return q.PutAll(ctx, [][]byte{data}, opts...)
}

// PutAll appends several items in one transaction: all of them, or none if it returns an
// error other than [recipes.ErrUnconfirmed]. Errors are those of [Queue.Put].
func (q *Queue) PutAll(ctx context.Context, data [][]byte, opts ...PutOption) error {
	return q.fail("put into", q.putAll(ctx, data, opts))
}

func (q *Queue) putAll(ctx context.Context, data [][]byte, opts []PutOption) error {
	if q.ctx.Err() != nil {
		return ErrClosed
	}
	if len(data) == 0 {
		return nil
	}
	prefix, err := q.place(ctx, opts)
	if err != nil {
		return err
	}
	ops := make([]any, len(data))
	for i, payload := range data {
		r, err := q.create(prefix, payload)
		if err != nil {
			return err
		}
		ops[i] = r
	}
	if q.cfg.MaxItems > 0 {
		n, err := q.count(ctx)
		if err != nil {
			return err
		}
		if n+len(data) > q.cfg.MaxItems {
			return fmt.Errorf("%w: %d items", ErrFull, n)
		}
	}
	o, err := q.put(ctx, txn.Transaction{Ops: ops}, 0)
	if err != nil {
		return err
	}
	return o.Err
}

// PutRequest returns the operation that Put would send, for use in another transaction. As
// an operation of [Item.Ack] it moves an item to another queue. In the Multi of a lock or a
// leadership it adds an item only while the lock or the leadership is held. The znodes of
// the queue must exist, or the transaction fails with zk.ErrNoNode; see [Queue.Create].
// PutRequest does not check MaxItems. With [At], PutRequest may have to query the time of
// the server, and blocks until it is known or ctx is done.
func (q *Queue) PutRequest(ctx context.Context, data []byte, opts ...PutOption) (*zk.CreateRequest, error) {
	prefix, err := q.place(ctx, opts)
	if err != nil {
		return nil, q.fail("put into", err)
	}
	r, err := q.create(prefix, data)
	return r, q.fail("put into", err)
}

func (q *Queue) create(prefix string, payload []byte) (*zk.CreateRequest, error) {
	if len(payload) > maxItem {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(payload))
	}
	raw := payload
	if q.layout != recipes.Kazoo {
		raw = encode(payload)
	} else {
		raw = append([]byte(nil), payload...) // it may be sent after Put has returned
	}
	return &zk.CreateRequest{Path: q.item(prefix), Data: raw, Acl: q.acl, Flags: zk.FlagSequence}, nil
}

// place is the name of new items up to the number.
func (q *Queue) place(ctx context.Context, opts []PutOption) (string, error) {
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	var p putting
	for _, o := range opts {
		if o == nil {
			return "", fmt.Errorf("%w: an option is nil", zkerror.ErrInvalidOption)
		}
		o(&p)
	}
	if !p.at.IsZero() && q.layout != recipes.Kazoo {
		offset, err := q.offset(ctx)
		if err != nil {
			return "", err
		}
		p.at = p.at.Add(offset)
	}
	if !p.at.IsZero() {
		p.due = max(p.at.UnixMilli(), 1)
	}
	return p.prefix(q.layout)
}

// offset is how far the clock of the ensemble's leader is ahead.
func (q *Queue) offset(ctx context.Context) (time.Duration, error) {
	for {
		if offset, known := q.writer.ClockOffset(); known {
			return offset, nil
		}
		_, err := q.do(ctx, txn.Transaction{}) // if it is lost, the next one may not be
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, zkerror.ErrConnClosed):
			return 0, zkerror.ErrConnClosed
		case err != nil && !errors.Is(err, zkerror.ErrUnconfirmed):
			return 0, err
		}
	}
}

// put carries out a transaction that creates items from its operation first on. It
// sees to it that there is a directory for them, whose counter counts.
func (q *Queue) put(ctx context.Context, t txn.Transaction, first int) (txn.Outcome, error) {
	ops := t.Ops
	met := false // the last number, in this call
	for {
		renewing := q.exhausted.Load()
		if renewing {
			anew := []any{&zk.DeleteRequest{Path: q.path, Version: -1}, &zk.CreateRequest{Path: q.path, Acl: q.acl}}
			t.Ops = slices.Concat(ops[:first], anew, ops[first:])
		} else {
			t.Ops = ops
		}
		o, err := q.do(ctx, t)
		switch {
		case err != nil || o.Err != nil && o.Failed < first:
			return o, err
		case o.Err == nil:
			q.exhausted.Store(atEnd(o.Responses))
			return o, nil
		case errors.Is(o.Err, zk.ErrNoNode):
			q.exhausted.Store(false)
			if err := q.makeItems(ctx); err != nil {
				return o, err
			}
		case errors.Is(o.Err, zk.ErrNotEmpty) && met:
			return o, ErrExhausted
		case errors.Is(o.Err, zk.ErrNotEmpty): // somebody else may have made it anew since
			q.exhausted.Store(false)
		case errors.Is(o.Err, zk.ErrNodeExists) && !renewing:
			q.exhausted.Store(true)
			met = true
		default:
			return o, nil
		}
	}
}

// atEnd reports whether the directory's counter stands still.
func atEnd(responses []zk.MultiResponse) bool {
	return slices.ContainsFunc(responses, func(r zk.MultiResponse) bool { return strings.HasSuffix(r.String, lastNumber) })
}

// lastNumber is what the server's counter ends at. It gives it again and again.
const lastNumber = "2147483647"

// do applies a transaction, unless ctx is done before. The error is that nothing was sent, that the
// outcome is unknown, or one that is not about an operation.
func (q *Queue) do(ctx context.Context, t txn.Transaction) (txn.Outcome, error) {
	o, err := q.writer.Run(ctx, t)
	switch {
	case errors.Is(err, txn.ErrUnknown):
		return o, fmt.Errorf("%w: %w", zkerror.ErrUnconfirmed, err)
	case o.Failed < 0:
		return o, err
	}
	return o, nil
}
