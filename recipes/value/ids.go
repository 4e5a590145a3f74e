package value

import (
	"context"
	"fmt"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// IDs generates numbers that are unique among all users of a counter. It allocates them in
// blocks, with one change of the counter for each block. The numbers increase within this
// process. If the process ends, the unused numbers of its block are lost.
type IDs struct {
	counter *Counter
	size    int64
	// allocating has capacity 1, and contains an element while a call uses the fields below.
	allocating chan struct{}
	// next is the first unused number of the block, and left is how many of its numbers are unused. After the
	// largest number, next overflows, so only left shows that the block is exhausted.
	next, left int64
}

// NewIDs returns an IDs that allocates blocks of size numbers, at least 1, from c. The
// value of the counter is the last allocated number; the first number is 1.
func NewIDs(c *Counter, size int64) (*IDs, error) {
	if size < 1 {
		return nil, fmt.Errorf("%w: block size %d: must be at least 1", recipes.ErrInvalid, size)
	}
	return &IDs{counter: c, size: size, allocating: make(chan struct{}, 1)}, nil
}

// Next returns a unique number. It blocks on ZooKeeper only when a block is exhausted. If
// it is unknown whether a block was allocated, that block is not used, so an error never
// leads to duplicate numbers. Next may be called from any goroutine.
func (i *IDs) Next(ctx context.Context) (int64, error) {
	select {
	case i.allocating <- struct{}{}:
		defer func() { <-i.allocating }()
	case <-ctx.Done():
		return 0, i.counter.setup.Fail("take ids from", i.counter.setup.Path, context.Cause(ctx))
	}
	if i.left == 0 {
		last, err := i.counter.Add(ctx, i.size)
		if err != nil {
			return 0, err
		}
		i.next, i.left = last-i.size+1, i.size
	}
	id := i.next
	i.next++
	i.left--
	return id, nil
}
