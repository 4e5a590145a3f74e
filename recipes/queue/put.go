package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/once"
	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// PutOption says where an item is put.
type PutOption func(*putting)

type putting struct {
	placement
	at time.Time
}

// Priority puts an item before all those of greater numbers: 32 bits, or 0 to 999
// with [recipes.Kazoo]. Items without a priority come before all others, those of
// the Kazoo layout have 100. Curator's DistributedPriorityQueue shares a queue of
// such items.
func Priority(n int) PutOption {
	return func(p *putting) { p.priority, p.hasPriority = n, true }
}

// At delays an item until t, in milliseconds. It is measured by the clock of the
// ensemble's leader, so that producers and consumers need not agree on the time; a
// t in the past is as good as none. Curator's DistributedDelayQueue shares a queue
// of such items, but goes by the clocks of its clients. An item cannot have both a
// time and a priority, and no time with [recipes.Kazoo].
func At(t time.Time) PutOption { return func(p *putting) { p.at = t } }

// maxItem is how large an item's data may be: less than what ZooKeeper accepts,
// so that it can become a dead letter.
const maxItem = 1<<20 - 12<<10

// Put appends an item. It is there once, whatever the network does, when Put
// returns nil.
//
// [ErrFull], [ErrTooLarge], [ErrExhausted], [recipes.ErrPermission] and
// [recipes.ErrInvalidOption]: it was not put. [recipes.ErrUnconfirmed]: the
// context ended while the request was under way, or the session ended or the
// connection was closed before the answer came; it may have been put, or, after the
// end of the context, may still be. A context that ends before the request was sent
// is returned as its cause alone.
func (q *Queue) Put(ctx context.Context, data []byte, opts ...PutOption) error {
	return q.PutAll(ctx, [][]byte{data}, opts...)
}

// PutAll appends several items in one transaction: all of them or, with an error,
// none. The errors are those of [Queue.Put].
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
	o, err := q.put(ctx, once.Transaction{Ops: ops}, 0)
	if err != nil {
		return err
	}
	return o.Err
}

// PutRequest returns the operation that Put would send, for a transaction of the caller:
// [Item.Ack] with it moves an item from one queue to another, and the Multi of a lock or a
// leadership puts an item only while the lock or the leadership is held. The znodes of the
// queue must exist, or the transaction fails with zk.ErrNoNode: see [Queue.Create]. MaxItems
// is not checked. With [At] PutRequest may have to ask the server for the time, until ctx
// ends.
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
			return "", fmt.Errorf("%w: it is nil", sentinel.ErrInvalidOption)
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
		if offset, known := q.writer.Offset(); known {
			return offset, nil
		}
		_, err := q.do(ctx, once.Transaction{}) // if it is lost, the next one may not be
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, request.ErrClosed):
			return 0, request.ErrClosed
		case err != nil && !errors.Is(err, sentinel.ErrUnconfirmed):
			return 0, err
		}
	}
}

// put carries out a transaction that creates items from its operation first on. It
// sees to it that there is a directory for them, whose counter counts.
func (q *Queue) put(ctx context.Context, t once.Transaction, first int) (once.Outcome, error) {
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

// do carries out a transaction, for as long as the context lasts. The error is
// that the outcome is unknown, or that nothing was sent.
func (q *Queue) do(ctx context.Context, t once.Transaction) (once.Outcome, error) {
	call := q.writer.Do(t)
	select {
	case <-call.Done():
	case <-ctx.Done():
		if q.writer.Withdraw(call) {
			return once.Outcome{}, context.Cause(ctx)
		}
		select {
		case <-call.Done():
		default:
			return once.Outcome{}, fmt.Errorf("%w: %w", sentinel.ErrUnconfirmed, context.Cause(ctx))
		}
	}
	o := call.Outcome()
	switch {
	case errors.Is(o.Err, once.ErrUnknown):
		return o, fmt.Errorf("%w: %w", sentinel.ErrUnconfirmed, o.Err)
	case o.Err != nil && o.Failed < 0:
		return o, o.Err
	}
	return o, nil
}
