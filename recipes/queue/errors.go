package queue

import (
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// Errors of this package in addition to those of package recipes, to be tested with
// errors.Is.
var (
	// ErrParts is returned by [Item.Ack] if the item has several payloads and [Item.Parts]
	// was not called.
	ErrParts = errors.New("queue: item has several payloads, which Item.Parts returns")
	// ErrEmpty is returned by TryTake if no item can be taken at present.
	ErrEmpty = errors.New("queue: no item available")
	// ErrFull is returned by Put if the queue has as many items as [WithMaxItems] allows.
	ErrFull = errors.New("queue: full")
	// ErrClaimed is returned by Withdraw if a consumer has the item.
	ErrClaimed = errors.New("queue: a consumer has the item")
	// ErrDead is returned by Wait if the item became a [DeadLetter].
	ErrDead = errors.New("queue: the item became a dead letter")
)

// errSettled is the error of an item that was returned, or acknowledged by another call.
var errSettled = fmt.Errorf("%w: the item was acknowledged or returned", recipes.ErrReleased)
