package counter

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// Counter is an integer that is stored in a znode. It may be used by any number of
// goroutines.
type Counter struct {
	value *Value[int64]
	// updating, of capacity 1, holds an element while a call changes the counter. Of concurrent
	// changes only one succeeds, so the calls of a process change it one after another.
	updating chan struct{}
}

// NewCounter returns the 64-bit counter at path, in the format of Curator's
// DistributedAtomicLong or, with [recipes.Kazoo], of kazoo's Counter. The counter is 0 if
// the znode does not exist. NewCounter sends no request. Errors: [recipes.ErrInvalid].
func NewCounter(conn *zk.Conn, path string, opts ...recipes.Option) (*Counter, error) {
	c, err := newCounter(conn, path, long, opts)
	if err == nil && c.value.node.Layout == recipes.Kazoo {
		c.value.codec = decimal
	}
	return c, err
}

// NewInt32 is like NewCounter, for a 32-bit counter in the format of Curator's SharedCount
// and DistributedAtomicInteger, which is also that of kazoo's Counter with support_curator.
func NewInt32(conn *zk.Conn, path string, opts ...recipes.Option) (*Counter, error) {
	return newCounter(conn, path, integer, opts)
}

func newCounter(conn *zk.Conn, path string, codec Codec[int64], opts []recipes.Option) (*Counter, error) {
	v, err := NewValue(conn, path, codec, opts...)
	if err != nil {
		return nil, err
	}
	return &Counter{value: v, updating: make(chan struct{}, 1)}, nil
}

// Get returns the counter. Like [Value.Get], it may be slightly out of date.
func (c *Counter) Get(ctx context.Context) (int64, error) {
	n, _, err := c.value.Get(ctx)
	return n, err
}

// Add adds delta exactly once and returns the sum. Errors: [ErrOverflow], [ErrFormat], and
// [recipes.ErrUnconfirmed] if it is unknown whether delta was added.
func (c *Counter) Add(ctx context.Context, delta int64) (int64, error) {
	return c.update(ctx, "add to", func(n int64) (int64, error) { return add(n, delta) })
}

// Set sets the counter to n, whatever its value is.
func (c *Counter) Set(ctx context.Context, n int64) error {
	_, err := c.value.Set(ctx, n)
	return err
}

// CompareAndSet sets the counter to n if it is equal to old, and returns [ErrChanged]
// otherwise.
func (c *Counter) CompareAndSet(ctx context.Context, old, n int64) error {
	_, err := c.update(ctx, "compare and set", func(current int64) (int64, error) {
		if current != old {
			return 0, ErrChanged
		}
		return n, nil
	})
	return err
}

func (c *Counter) update(ctx context.Context, operation string, f func(int64) (int64, error)) (n int64, err error) {
	select {
	case c.updating <- struct{}{}:
		n, err = c.value.compute(ctx, f)
		<-c.updating
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return n, c.value.node.Fail(operation, c.value.node.Path, err)
}
