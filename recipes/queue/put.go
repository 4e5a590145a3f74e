package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// maxItem is the maximum size of the data of an item. It is less than the limit of the servers, so
// that the item can be moved to the dead letters.
const maxItem = 1<<20 - 12<<10

// Put appends an item. If it returns nil, the item was added exactly once, even if
// connections were lost.
//
// The item was not added if the error is [ErrFull], [recipes.ErrTooLarge],
// [recipes.ErrNodeExhausted], which lasts until the queue has been empty, [recipes.ErrPermission]
// or [recipes.ErrInvalid], or the cause of ctx alone, which means that ctx was done before
// the request was sent. The error wraps [recipes.ErrUnconfirmed] if ctx was done while the request
// was in flight, or if the session ended or the connection was closed before the reply: the item
// may have been added, or, after ctx was done, may still be added.
func (q *Queue) Put(ctx context.Context, data []byte, opts ...PutOption) error {
	return q.PutAll(ctx, [][]byte{data}, opts...)
}

// PutAll appends several items in one transaction: all of them, or none if it returns an
// error other than [recipes.ErrUnconfirmed]. Errors are those of [Queue.Put].
func (q *Queue) PutAll(ctx context.Context, data [][]byte, opts ...PutOption) error {
	return q.wrapError("put into", q.putAll(ctx, data, opts))
}

func (q *Queue) putAll(ctx context.Context, data [][]byte, opts []PutOption) error {
	if q.ctx.Err() != nil {
		return recipes.ErrClosed
	}
	if len(data) == 0 {
		return nil
	}
	if err := q.checkDirs(ctx); err != nil {
		return err
	}
	prefix, err := q.namePrefix(ctx, opts)
	if err != nil {
		return err
	}
	ops := make([]any, len(data))
	for i, payload := range data {
		r, err := q.createRequest(prefix, payload)
		if err != nil {
			return err
		}
		ops[i] = r
	}
	if q.cfg.maxItems > 0 {
		n, err := q.countItems(ctx)
		if err != nil {
			return err
		}
		if n+len(data) > q.cfg.maxItems {
			return fmt.Errorf("%w: %d items", ErrFull, n)
		}
	}
	o, err := q.createItems(ctx, ops, 0)
	if err != nil {
		return err
	}
	return o.Err
}

// PutRequest returns the operation that Put would send, for use in another transaction. As an
// operation of [Item.Ack] it moves an item to another queue. In the Multi of a lock or a leadership
// it adds an item only while the lock or the leadership is held. The znodes of the queue must
// exist, or the transaction fails with zk.ErrNoNode; see [Queue.Create]. PutRequest does not check
// the limit of [WithMaxItems]. With [WithTime] or [recipes.WithACL], PutRequest may have to query
// the time of the server or the ACLs, and blocks until they are known or ctx is done.
func (q *Queue) PutRequest(ctx context.Context, data []byte, opts ...PutOption) (*zk.CreateRequest, error) {
	r, err := q.putRequest(ctx, data, opts)
	return r, q.wrapError("put into", err)
}

func (q *Queue) putRequest(ctx context.Context, data []byte, opts []PutOption) (*zk.CreateRequest, error) {
	if err := q.checkDirs(ctx); err != nil {
		return nil, err
	}
	prefix, err := q.namePrefix(ctx, opts)
	if err != nil {
		return nil, err
	}
	return q.createRequest(prefix, data)
}

// createRequest returns the operation that creates an item.
func (q *Queue) createRequest(prefix string, payload []byte) (*zk.CreateRequest, error) {
	if len(payload) > maxItem {
		return nil, fmt.Errorf("%w: an item of %d bytes", recipes.ErrTooLarge, len(payload))
	}
	var raw []byte
	if q.layout == recipe.Kazoo {
		raw = slices.Clone(payload) // the request may be sent after Put has returned
	} else {
		raw = encode(payload)
	}
	return &zk.CreateRequest{Path: q.itemPath(prefix), Data: raw, Acl: q.acl, Flags: zk.FlagSequence}, nil
}

// namePrefix returns the names of new items without their sequence numbers.
func (q *Queue) namePrefix(ctx context.Context, opts []PutOption) (string, error) {
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	var o putOptions
	if err := recipe.EachOption(opts, func(opt PutOption) error { opt.applyPut(&o); return nil }); err != nil {
		return "", err
	}
	if !o.at.IsZero() {
		if q.layout != recipe.Kazoo { // kazoo's layout does not support a time
			leader, local, err := q.leaderTime(ctx)
			if err != nil {
				return "", err
			}
			o.at = o.at.Add(leader.Sub(local))
		}
		o.position.due = dueTime(o.at)
	}
	return o.position.prefix(q.layout)
}

// dueTime returns a time in milliseconds since 1970, or the nearest number that is possible.
func dueTime(t time.Time) int64 {
	switch {
	case t.Before(time.UnixMilli(1)):
		return 1
	case t.After(time.UnixMilli(math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixMilli()
}

// leaderTime returns the present time by the clock of the ensemble's leader and by the local clock.
func (q *Queue) leaderTime(ctx context.Context) (leader, local time.Time, err error) {
	leader, local, known := q.writer.LeaderTime()
	for !known {
		if _, err := q.writer.Confirm(ctx); err != nil {
			return leader, local, err
		}
		leader, local, known = q.writer.LeaderTime() // unknown if the reply was lost
	}
	return leader, local, nil
}

// createItems applies a transaction that creates items by its operations from index first on. If
// the directory of the items does not exist, or if its sequence numbers are exhausted and it is
// empty, createItems creates it again.
func (q *Queue) createItems(ctx context.Context, ops []any, first int) (txn.Outcome, error) {
	foundExhausted := false // in this call
	for {
		recreate := q.exhausted.Load()
		t := txn.Transaction{Ops: ops}
		if recreate {
			directory := []any{&zk.DeleteRequest{Path: q.path, Version: -1}, &zk.CreateRequest{Path: q.path, Acl: q.acl}}
			t.Ops = slices.Concat(ops[:first], directory, ops[first:])
		}
		o, err := q.runTransaction(ctx, t)
		switch {
		case err != nil || o.Err != nil && o.Failed < first:
			return o, err
		case o.Err == nil:
			q.exhausted.Store(hasLastNumber(o.Responses))
			return o, nil
		case errors.Is(o.Err, zk.ErrNoNode):
			q.exhausted.Store(false)
			if err := q.makeItems(ctx); err != nil {
				return o, err
			}
		case errors.Is(o.Err, zk.ErrNotEmpty) && foundExhausted:
			return o, recipes.ErrNodeExhausted
		case errors.Is(o.Err, zk.ErrNotEmpty): // another client may have created the directory again
			q.exhausted.Store(false)
		case errors.Is(o.Err, zk.ErrNodeExists) && !recreate:
			q.exhausted.Store(true)
			foundExhausted = true
		default:
			return o, nil
		}
	}
}

// hasLastNumber reports whether the sequence numbers of the directory are exhausted.
func hasLastNumber(responses []zk.MultiResponse) bool {
	return slices.ContainsFunc(responses, func(r zk.MultiResponse) bool { return strings.HasSuffix(r.String, lastNumber) })
}

// lastNumber is the last sequence number of a directory. The server uses it for all later creates.
const lastNumber = "2147483647"

// runTransaction applies a transaction, unless ctx is done before it is sent. The error means that
// nothing was sent, that the outcome is unknown, or that the whole request has failed. If an
// operation has failed, the error is nil and the outcome contains the error.
func (q *Queue) runTransaction(ctx context.Context, t txn.Transaction) (txn.Outcome, error) {
	o, err := q.writer.Run(ctx, t)
	switch {
	case errors.Is(err, txn.ErrUnknown):
		return o, fmt.Errorf("%w: %w", zkerror.ErrUnconfirmed, err)
	case o.Failed < 0:
		return o, err
	}
	return o, nil
}
