package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// maxItem is the maximum size of the data of an item. maxItem is less than the limit of the servers, so that
// the item can be moved to the dead letters.
const maxItem = 1<<20 - 12<<10

// Put appends an item, and returns its ID (see [Item.ID]). If the error is nil, the item was added exactly
// once, even if connections were lost. If the reply was lost and a consumer has already completed the item,
// the ID is empty.
//
// The item was not added if the error is [ErrFull], [recipes.ErrTooLarge],
// [recipes.ErrNodeExhausted], which lasts until the queue has been empty, [recipes.ErrPermission]
// or [recipes.ErrInvalid], or the cause of ctx alone, which means that ctx was done before
// the request was sent. The error wraps [recipes.ErrUnconfirmed] if ctx was done while the request
// was in flight, or if the session ended or the connection was closed before the reply: the item
// may have been added, or, after ctx was done, may still be added.
func (q *Queue) Put(ctx context.Context, data []byte, opts ...PutOption) (id string, err error) {
	ids, err := q.PutAll(ctx, [][]byte{data}, opts...)
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// PutAll appends several items in one transaction: all of them, or none if it returns an
// error other than [recipes.ErrUnconfirmed]. It returns their IDs, in the order of data. Errors are those of
// [Queue.Put].
func (q *Queue) PutAll(ctx context.Context, data [][]byte, opts ...PutOption) (ids []string, err error) {
	ids, err = q.putAll(ctx, data, opts)
	return ids, q.wrapError("put into", err)
}

func (q *Queue) putAll(ctx context.Context, data [][]byte, opts []PutOption) ([]string, error) {
	if q.ctx.Err() != nil {
		return nil, recipes.ErrClosed
	}
	settings, err := putOptionsOf(opts)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	if err := q.checkDirs(ctx); err != nil {
		return nil, err
	}
	prefix, err := q.namePrefix(ctx, settings)
	if err != nil {
		return nil, err
	}
	ops := make([]any, len(data))
	for i, payload := range data {
		r, err := q.createRequest(prefix, payload)
		if err != nil {
			return nil, err
		}
		ops[i] = r
	}
	if err := q.awaitRoom(ctx, len(data), settings.wait); err != nil {
		return nil, err
	}
	o, err := q.createItems(ctx, ops, 0)
	if err = cmp.Or(err, o.Err); err != nil {
		return nil, err
	}
	if o.Responses == nil {
		return q.findItems(ctx, prefix, o.Zxid, len(data)), nil
	}
	ids := make([]string, len(data))
	for i, r := range o.Responses[len(o.Responses)-len(data):] {
		ids[i] = path.Base(r.String)
	}
	return ids, nil
}

// awaitRoom returns nil if the queue has room for n items. Otherwise it returns ErrFull, or, if wait is set,
// waits for room. It counts the items after growing intervals, because a watch would transfer all names after
// each change.
func (q *Queue) awaitRoom(ctx context.Context, n int, wait bool) error {
	if q.cfg.maxItems == 0 {
		return nil
	}
	if n > q.cfg.maxItems {
		return fmt.Errorf("%w: %d new items exceed WithMaxItems(%d)", ErrFull, n, q.cfg.maxItems)
	}
	ctx, cancel := q.untilClosed(ctx)
	defer cancel()
	for interval := minRoomInterval; ; interval = min(2*interval, maxRoomInterval) {
		items, err := q.countItems(ctx)
		switch {
		case err != nil:
			return err
		case items+n <= q.cfg.maxItems:
			return nil
		case !wait:
			return fmt.Errorf("%w: the queue already contains %d items", ErrFull, items)
		}
		if err := limit.Pause(ctx, interval); err != nil {
			return err
		}
	}
}

const minRoomInterval, maxRoomInterval = 50 * time.Millisecond, time.Second

// findItems returns the names of n items that the transaction zxid has created, although its reply was lost. If
// some of the items do not exist any more, all names are empty.
func (q *Queue) findItems(ctx context.Context, prefix string, zxid int64, n int) []string {
	ids := make([]string, n)
	names, _ := q.names(ctx, q.path)
	names = slices.DeleteFunc(names, func(name string) bool {
		e, ok := parseName(q.layout, name)
		return !ok || prefixOf(e) != prefix
	})
	slices.Sort(names)
	found := 0
	for _, name := range slices.Backward(names) { // the newest items are the last ones
		stat, err := connection.ReadStat(ctx, q.conn, q.itemPath(name))
		if err != nil || stat.Czxid != 0 && stat.Czxid < zxid {
			break
		}
		if stat.Czxid == zxid {
			found++
			ids[n-found] = name
		}
	}
	if found < n {
		return make([]string, n) // some items were completed, and it is unknown which ones
	}
	return ids
}

// PutRequest returns the operation that Put would send, for use in another transaction. As an operation of
// [Item.Ack] it moves an item to another queue. In the Multi of a lock or a leadership it adds an item only
// while the lock or the leadership is held. The znodes of the queue must exist, or the transaction fails
// with zk.ErrNoNode; see [Queue.Create]. PutRequest does not check the limit of [WithMaxItems], and
// [WithWaiting] has no effect. With [WithTime] or [recipes.WithACL], PutRequest may have to query the time
// of the server or the ACLs, and blocks until they are known or ctx is done.
func (q *Queue) PutRequest(ctx context.Context, data []byte, opts ...PutOption) (*zk.CreateRequest, error) {
	r, err := q.putRequest(ctx, data, opts)
	return r, q.wrapError("put into", err)
}

func (q *Queue) putRequest(ctx context.Context, data []byte, opts []PutOption) (*zk.CreateRequest, error) {
	settings, err := putOptionsOf(opts)
	if err == nil {
		err = q.checkDirs(ctx)
	}
	if err != nil {
		return nil, err
	}
	prefix, err := q.namePrefix(ctx, settings)
	if err != nil {
		return nil, err
	}
	return q.createRequest(prefix, data)
}

// createRequest returns the operation that creates an item.
func (q *Queue) createRequest(prefix string, payload []byte) (*zk.CreateRequest, error) {
	if len(payload) > maxItem {
		return nil, fmt.Errorf("%w: the item has %d bytes, and the limit is %d", recipes.ErrTooLarge, len(payload), maxItem)
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
func (q *Queue) namePrefix(ctx context.Context, o putOptions) (string, error) {
	if err := context.Cause(ctx); err != nil {
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

// dueTime returns t in milliseconds since 1970, or the nearest number that is valid as the due time of an item.
func dueTime(t time.Time) int64 {
	switch {
	case t.Before(time.UnixMilli(1)):
		return 1
	case t.After(time.UnixMilli(math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixMilli()
}

// leaderTime returns the present time, by the clock of the ensemble's leader and by the local clock.
func (q *Queue) leaderTime(ctx context.Context) (leader, local time.Time, err error) {
	leader, local, known := q.writer.LeaderTime()
	for !known {
		if _, err := q.writer.Confirm(ctx); err != nil {
			return leader, local, err
		}
		leader, local, known = q.writer.LeaderTime() // the time is unknown if the reply was lost
	}
	return leader, local, nil
}

// createItems applies a transaction whose operations from index first on create items. If the directory of
// the items does not exist, createItems creates it. If its sequence numbers are exhausted and it is empty,
// createItems replaces it by a new one.
func (q *Queue) createItems(ctx context.Context, ops []any, first int) (txn.Outcome, error) {
	foundExhausted := false // set when this call has found the sequence numbers exhausted
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
		case errors.Is(o.Err, zk.ErrNotEmpty): // another client may have created the directory again and put items
			q.exhausted.Store(false)
		case errors.Is(o.Err, zk.ErrNodeExists) && !recreate:
			q.exhausted.Store(true)
			foundExhausted = true
		default:
			return o, nil
		}
	}
}

// hasLastNumber reports whether a response contains the last sequence number of a directory, after which the
// numbers are exhausted.
func hasLastNumber(responses []zk.MultiResponse) bool {
	return slices.ContainsFunc(responses, func(r zk.MultiResponse) bool { return strings.HasSuffix(r.String, lastNumber) })
}

// lastNumber is the last sequence number of a directory. The server assigns it to all later creates too.
const lastNumber = "2147483647"

// runTransaction applies a transaction, unless ctx is done before it is sent. An error means that nothing was
// sent, that the outcome is unknown, or that the request as a whole has failed. If one operation has failed,
// the error is nil and the outcome contains the error of the operation.
func (q *Queue) runTransaction(ctx context.Context, t txn.Transaction) (txn.Outcome, error) {
	o, err := q.writer.Run(ctx, t)
	switch {
	case errors.Is(err, txn.ErrUnknown):
		return o, fmt.Errorf("%w: %w", connection.ErrUnconfirmed, err)
	case o.Failed < 0:
		return o, err
	}
	return o, nil
}
