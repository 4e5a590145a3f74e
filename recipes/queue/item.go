package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/grant"
	"github.com/go-leaderelection/leaderelection/internal/once"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
)

// Item is an item that was claimed: nobody else has it until it is acknowledged,
// returned or lost. It is a value to pass on: its methods may be called from any
// goroutine. The zero Item is none.
type Item struct{ d *delivery }

// ID is the name of the item's znode. It is the same at each attempt, but for
// items that a consumer of Curator puts back or that were dead letters.
func (i Item) ID() string { return i.d.name }

// Data is the payload. Of an item that Curator's putMulti made from several it is
// the first, and the item is not acknowledged unless [Item.Parts] was called.
// Nobody may change it.
func (i Item) Data() []byte {
	if len(i.d.parts) == 0 {
		return nil
	}
	return i.d.parts[0]
}

// Parts are all payloads. Items that this library or kazoo puts have one.
func (i Item) Parts() [][]byte {
	i.d.opened.Store(true)
	return i.d.parts
}

// Priority is the one that the item was put with, 0 if it has none.
func (i Item) Priority() int {
	if i.d.priority == noPriority {
		return 0
	}
	return int(i.d.priority)
}

// Attempt counts how often the item was handed out, this time included. It was
// counted, durably, before the item was handed out.
func (i Item) Attempt() int { return i.d.attempt }

// Token is the fencing token: of two grants of one item the later has the greater
// token. It is the creation zxid of the claim, which grows over the life of an
// ensemble and starts anew when the ensemble is rebuilt without its data.
//
// A resource is protected by the tokens of one item. Tokens of different items, and those
// of elections and locks, must not be compared, although all are zxids: a greater one says
// nothing there, and a record that both are checked against rejects the holder of the
// smaller one. A job that writes to a shared resource keeps a record for each item, for
// instance under its path.
func (i Item) Token() int64 { return i.d.grant.Token() }

// Done is closed, once, as soon as the item is acknowledged, returned or lost, or
// can no longer be proven to be this consumer's.
func (i Item) Done() <-chan struct{} { return i.d.grant.Context().Done() }

// Err is nil while the item is this consumer's, and afterwards why it is not:
// [ErrSettled], [ErrClosed], [recipes.ErrLeaseExpired],
// [recipes.ErrSessionExpired], [recipes.ErrDeleted], [recipes.ErrConnClosed] or
// [recipes.ErrUnconfirmed], for errors.Is. It asks the clock, so that it is right
// even when this process has only just been resumed.
func (i Item) Err() error { return i.d.grant.Err() }

// Deadline is until when the item is proven to be this consumer's at this moment.
// It moves forward, and stays where it was at the end.
func (i Item) Deadline() time.Time { return i.d.grant.Deadline() }

// Context is done when the item is not this consumer's any more; its cause is
// what Err returns.
func (i Item) Context() context.Context { return i.d.grant.Context() }

// Multi carries out ops as one ZooKeeper transaction that commits only while the
// item is this consumer's, however long this process was stopped and whatever the
// network does. Without ops it is a check, by the ensemble, that it is. ops are
// *[zk.CreateRequest], *[zk.SetDataRequest], *[zk.DeleteRequest] and
// *[zk.CheckVersionRequest]; the responses are theirs, and nil when ops were
// applied but the answer was lost.
//
// The error is [ErrClaimLost] when the item is not this consumer's, and nothing was
// applied then; [recipes.ErrUnconfirmed] when the session ended or the connection
// was closed meanwhile, so that the outcome is unknown; or, wrapped, what
// ZooKeeper has against ops, and nothing was applied. It blocks until ZooKeeper
// answers, and for at most two seconds after the end of the item.
func (i Item) Multi(ops ...any) ([]zk.MultiResponse, error) {
	d := i.d
	if err := d.grant.Err(); err != nil {
		return nil, d.lost(err)
	}
	check := &zk.CheckVersionRequest{Path: d.q.claim(d.name), Version: -1}
	call := d.q.writer.Do(once.Transaction{Ops: append([]any{check}, ops...), Session: d.session, Alone: true})
	select {
	case <-call.Done():
	case <-d.grant.Context().Done():
		limit := time.NewTimer(confirmLimit)
		defer limit.Stop()
		select {
		case <-call.Done():
		case <-limit.C:
			if d.q.writer.Withdraw(call) {
				return nil, d.lost(d.grant.Err())
			}
			return nil, d.fail("write for", fmt.Errorf("%w: %w", sentinel.ErrUnconfirmed, d.grant.Err()))
		}
	}
	switch o := call.Outcome(); {
	case o.Err == nil && o.Responses == nil:
		return nil, nil
	case o.Err == nil:
		return o.Responses[1:], nil
	case errors.Is(o.Err, once.ErrUnknown):
		return nil, d.fail("write for", fmt.Errorf("%w: %w", sentinel.ErrUnconfirmed, o.Err))
	case errors.Is(o.Err, once.ErrSession):
		return nil, d.lost(sentinel.ErrSessionExpired)
	case errors.Is(o.Err, once.ErrClosed):
		return nil, d.lost(ErrClosed)
	case o.Failed == 0 && errors.Is(o.Err, zk.ErrNoNode):
		return nil, d.lost(sentinel.ErrDeleted)
	default:
		return nil, d.fail("write for", o.Err)
	}
}

// confirmLimit is how long the answer to a transaction is waited for after the
// end of the item.
const confirmLimit = 1500 * time.Millisecond

// delivery is an item that was claimed by this process, once.
type delivery struct {
	entry
	q *Queue

	// Of the claim.
	session int64
	token   int64

	// Of the item.
	raw     []byte
	parts   [][]byte
	version int32
	czxid   int64
	attempt int
	early   *earlyRead // until it is read

	grant  *grant.Grant
	end    context.CancelCauseFunc
	opened atomic.Bool // Parts was called
	read   atomic.Bool // the user has it
	// handedOut and lapses, which is the count of lapses of the lease at that
	// moment, are guarded by the queue's mu.
	handedOut bool
	lapses    uint64

	// turn has room for one: whoever has put something in may write for this
	// item, and read and set settled.
	turn    chan struct{}
	settled error // nil until it is acknowledged or returned, or both is impossible
}

// lost is ErrClaimLost for a reason.
func (d *delivery) lost(reason error) error {
	return d.fail("use", fmt.Errorf("%w: %w", ErrClaimLost, reason))
}

func (d *delivery) fail(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, d.q.item(d.name), d.q.refine(err))
}
