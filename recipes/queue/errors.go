package queue

import "errors"

// The errors of this package besides those of package recipes, for errors.Is.
var (
	// ErrClosed: the queue was closed by Close.
	ErrClosed = errors.New("queue: closed")
	// ErrClaimLost: the item is not this consumer's any more: nothing was
	// applied. It wraps the reason, which is that of [Item.Err].
	ErrClaimLost = errors.New("queue: the item's claim is lost")
	// ErrSettled: the item was acknowledged or returned before.
	ErrSettled = errors.New("queue: the item was acknowledged or returned")
	// ErrParts: the item has several payloads, and only the first was read.
	ErrParts = errors.New("queue: the item has several payloads, see Item.Parts")
	// ErrEmpty: there is nothing to take at this moment.
	ErrEmpty = errors.New("queue: nothing to take")
	// ErrFull: the queue has as many items as Config.MaxItems allows.
	ErrFull = errors.New("queue: full")
	// ErrTooLarge: what is to be written is larger than a server with default
	// settings accepts, which is a megabyte with everything around it. Nothing
	// was sent.
	ErrTooLarge = errors.New("queue: larger than ZooKeeper accepts")
	// ErrTooMany: the queue has so many items that the connection does not
	// survive a listing of their names.
	ErrTooMany = errors.New("queue: too many items to be listed")
	// ErrExhausted: the queue's node has had 2147483647 children, and ZooKeeper
	// does not count further. Once the queue is empty the next Put mends it.
	ErrExhausted = errors.New("queue: all numbers are used up until the queue is empty")
)
