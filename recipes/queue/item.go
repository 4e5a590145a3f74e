package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Item is an item that this consumer has claimed: no other consumer can claim it until it
// is acknowledged, returned or lost. Its methods may be called from any goroutine.
type Item struct{ d *delivery }

// ID returns the name of the item's znode. It is the same in each attempt, except for items
// that a Curator consumer has put back or that were dead letters.
func (i *Item) ID() string { return i.d.name }

// Data returns the payload. If Curator's putMulti has stored several payloads in the item,
// Data returns the first, and the item cannot be acknowledged before [Item.Parts] was
// called. The data must not be modified.
func (i *Item) Data() []byte {
	if len(i.d.parts) == 0 {
		return nil
	}
	return i.d.parts[0]
}

// Parts returns all payloads. Items that were put by this library or by kazoo have exactly
// one.
func (i *Item) Parts() [][]byte {
	i.d.partsRead.Store(true)
	return i.d.parts
}

// Priority returns the priority given to Put, or 0 by default.
func (i *Item) Priority() int {
	if i.d.priority == noPriority {
		return 0
	}
	return int(i.d.priority)
}

// Attempt returns the number of deliveries of the item, including this one. It was stored
// in ZooKeeper before this delivery.
func (i *Item) Attempt() int { return i.d.attempt }

// Token returns the fencing token. Of two claims of one item the later one has the greater
// token. The token is the creation zxid of the claim. Zxids increase during the life of an
// ensemble, and restart if the ensemble is rebuilt without its data.
//
// Only tokens of the same item may be compared. Tokens of different items, elections and locks are unrelated,
// although all are zxids: a resource that compares the tokens of two items with one record rejects the holder
// of the smaller token. A job that writes to a shared resource should keep a separate record for each item, for
// instance keyed by the path of the item.
func (i *Item) Token() int64 { return i.d.grant.Token() }

// Done returns a channel that is closed when the item is acknowledged, returned or lost, or
// when its lease has expired.
func (i *Item) Done() <-chan struct{} { return i.d.grant.Context().Done() }

// Err returns nil while the claim is valid, and afterwards the reason why it is not:
// [recipes.ErrReleased], [recipes.ErrClosed], [recipes.ErrLeaseExpired], [recipes.ErrSessionExpired],
// [recipes.ErrDeleted], [recipes.ErrConnClosed] or [recipes.ErrUnconfirmed], to be tested
// with errors.Is. Err compares the lease with the clock, so it is accurate even if this
// process has just been resumed.
func (i *Item) Err() error { return i.d.grant.Err() }

// Deadline returns the time at which the lease of the claim expires unless it is renewed.
// It increases while the claim is valid, and does not change afterwards.
func (i *Item) Deadline() time.Time { return i.d.grant.Deadline() }

// Context returns a context that is done when the claim is not valid any more. Its cause is
// the error that Err returns.
func (i *Item) Context() context.Context { return i.d.grant.Context() }

// Multi executes ops as one ZooKeeper transaction that commits only while the claim is valid, even if this
// process was suspended or requests were delayed. A call without ops verifies the claim at the ensemble. ops
// must be *[zk.CreateRequest], *[zk.SetDataRequest], *[zk.DeleteRequest] or *[zk.CheckVersionRequest]. The
// responses correspond to ops, and are nil if ops were applied but the reply was lost.
//
// The error wraps [recipes.ErrNotHeld] if the claim is lost, and nothing was applied. It wraps
// [recipes.ErrUnconfirmed] if the session ended or the connection was closed during the
// call, so that the outcome is unknown. Otherwise it wraps ZooKeeper's error, and nothing
// was applied. Multi blocks until ZooKeeper answers, but for at most two seconds after the
// claim has ended.
func (i *Item) Multi(ops ...any) ([]zk.MultiResponse, error) {
	d := i.d
	if err := d.grant.Err(); err != nil {
		return nil, d.claimLost(err)
	}
	check := &zk.CheckVersionRequest{Path: d.q.claimPath(d.name), Version: -1}
	call := d.q.writer.Start(txn.Transaction{Ops: append([]any{check}, ops...), Session: d.session, Alone: true})
	select {
	case <-call.Done():
	case <-d.grant.Context().Done():
		select {
		case <-call.Done():
		case <-time.After(limit.Confirm):
			if d.q.writer.Withdraw(call) {
				return nil, d.claimLost(d.grant.Err())
			}
			return nil, d.wrapError("write for", fmt.Errorf("%w: %w", connection.ErrUnconfirmed, d.grant.Err()))
		}
	}
	switch o := call.Outcome(); {
	case o.Err == nil && o.Responses == nil:
		return nil, nil
	case o.Err == nil:
		return o.Responses[1:], nil
	case errors.Is(o.Err, txn.ErrUnknown):
		return nil, d.wrapError("write for", fmt.Errorf("%w: %w", connection.ErrUnconfirmed, o.Err))
	case errors.Is(o.Err, txn.ErrSession):
		return nil, d.claimLost(connection.ErrSessionExpired)
	case errors.Is(o.Err, txn.ErrClosed):
		return nil, d.claimLost(recipes.ErrClosed)
	case o.Failed == 0 && errors.Is(o.Err, zk.ErrNoNode):
		return nil, d.claimLost(connection.ErrDeleted)
	default:
		return nil, d.wrapError("write for", o.Err)
	}
}

// delivery is one claim of an item by this participant.
type delivery struct {
	entry
	q *Queue

	// session is the owner of the claim's znode, and token its czxid.
	session int64
	token   int64

	// The following fields are the content of the item, and are empty until the item is read.
	raw     []byte
	unread  bool // whether the data could not be read; raw and parts are empty then
	parts   [][]byte
	version int32
	czxid   int64
	ctime   int64 // when the item was put, in milliseconds since 1970
	attempt int
	early   *earlyRead // the read that was sent together with the claim; nil otherwise, and after the item was read

	grant *connection.Grant
	// partsRead means that Parts was called.
	partsRead atomic.Bool
	// received is set when Take or Items returns the item.
	received   atomic.Bool
	receivedAt time.Time // when Take or Items returned the item; valid if received is true
	// assigned is set when the item is assigned to a request. lapses is connection.State.Lapses at that time:
	// how often the lease had expired. The mutex of the queue guards both.
	assigned bool
	lapses   uint64

	// writing has capacity 1, and contains an element while a goroutine writes for the item. Only that
	// goroutine may use completed.
	writing chan struct{}
	// late contains the completions of which this is the first item, and whose calls have returned before the
	// completions have ended. The next call that returns the result of a completion removes the completion. The
	// mutex of the queue guards late.
	late []*completion
	// completed is nil as long as the item can be acknowledged or returned. Afterwards it is errAcknowledged,
	// errReturned or the reason why it can be neither.
	completed error
}

// claimLost returns the error of Multi if the claim was lost for the given reason.
func (d *delivery) claimLost(reason error) error {
	return d.wrapError("write for", fmt.Errorf("%w: %w", recipes.ErrNotHeld, reason))
}

// wrapError translates an error by translateError, and adds the operation and the path of the item to it.
func (d *delivery) wrapError(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", operation, d.q.itemPath(d.name), d.q.translateError(err))
}
