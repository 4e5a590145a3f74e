package queue

import "errors"

// Errors of this package in addition to those of package recipes, to be tested with
// errors.Is.
var (
	// ErrClosed is returned after Close was called.
	ErrClosed = errors.New("queue: closed")
	// ErrClaimLost is returned if this consumer has lost its claim of the item. Nothing was
	// applied. The error also wraps the reason, which is that of [Item.Err].
	ErrClaimLost = errors.New("queue: claim was lost")
	// ErrSettled is returned if the item was returned, or acknowledged by another call.
	ErrSettled = errors.New("queue: item was already acknowledged or returned")
	// ErrParts is returned by [Item.Ack] if the item has several payloads and [Item.Parts]
	// was not called.
	ErrParts = errors.New("queue: item has several payloads, see Item.Parts")
	// ErrEmpty is returned by TryTake if no item can be taken at present.
	ErrEmpty = errors.New("queue: no item available")
	// ErrFull is returned by Put if the queue has Config.MaxItems items.
	ErrFull = errors.New("queue: full")
	// ErrTooLarge is returned if a request is larger than a server with default settings
	// accepts, which is one megabyte including overhead. Nothing was sent.
	ErrTooLarge = errors.New("queue: item is larger than ZooKeeper accepts")
	// ErrTooMany is returned if the names of all items together are larger than the
	// connection's receive buffer.
	ErrTooMany = errors.New("queue: too many items to list")
	// ErrExhausted is returned by Put if the queue's node has had 2147483647 children, so
	// that ZooKeeper's sequence numbers are exhausted. The next Put after the queue has
	// become empty re-creates the node and succeeds.
	ErrExhausted = errors.New("queue: sequence numbers are exhausted until the queue is empty")
)
