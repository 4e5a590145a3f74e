package counter

import (
	"context"
	"fmt"

	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// IDs hands out numbers that no other user of the counter gets, in blocks: one
// change of the counter for many numbers. They grow, within this process. Numbers of
// a block that are not handed out before the process ends are lost.
type IDs struct {
	counter    *Counter
	size       int64
	turn       chan struct{} // capacity 1
	next, last int64         // what is left of the block; whoever holds turn uses them
}

// NewIDs takes blocks of size, at least 1, from a counter, whose value is the last
// number that was given to anybody: the first one is 1.
func NewIDs(c *Counter, size int64) (*IDs, error) {
	if size < 1 {
		return nil, fmt.Errorf("%w: blocks of %d ids", recipes.ErrInvalidOption, size)
	}
	return &IDs{counter: c, size: size, turn: make(chan struct{}, 1), next: 1}, nil
}

// Next returns a number. It waits for ZooKeeper only when a block is used up. Where
// it is not known whether a block was taken, the block is given up: an error never
// leads to a number that is handed out twice. It may be called from any goroutine.
func (i *IDs) Next(ctx context.Context) (int64, error) {
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return 0, setup.Fail("take ids from", i.counter.value.at.Path, context.Cause(ctx))
	}
	if i.next > i.last {
		last, err := i.counter.Add(ctx, i.size)
		if err != nil {
			return 0, err
		}
		i.next, i.last = last-i.size+1, last
	}
	id := i.next
	i.next++
	return id, nil
}
