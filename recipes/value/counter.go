package value

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// Counter is an integer that is stored in a znode. It may be used by any number of
// goroutines.
type Counter struct {
	setup *recipe.Setup
	value *Value[int64]
	// updating has capacity 1, and contains an element while a call changes the counter. Of several
	// concurrent changes only one would succeed, so the calls of a process change the counter one after
	// another.
	updating chan struct{}
}

// CounterOption is an option of a [Counter]: [WithInt32], and every [recipes.Option].
type CounterOption interface{ ApplyCounter(*recipe.Setup) }

// counterOption is an option that counters accept, and values do not.
type counterOption func(*recipe.Setup)

func (o counterOption) ApplyCounter(s *recipe.Setup) { o(s) }

// counterSettings contains what the options of counters set.
type counterSettings struct{ int32 bool }

// WithInt32 selects a 32-bit counter in the format of Curator's SharedCount and
// DistributedAtomicInteger, which is also that of kazoo's Counter with support_curator. The
// default is a 64-bit counter.
func WithInt32() CounterOption {
	return counterOption(recipe.Own("value.WithInt32", func(s *counterSettings) { s.int32 = true }))
}

// NewCounter returns the counter at path, in the format of Curator's DistributedAtomicLong or, with
// [recipes.WithKazooLayout], of kazoo's Counter. The counter is 0 if the znode does not exist. NewCounter
// sends no request. Options are those of package recipes and [WithInt32]. Errors:
// [recipes.ErrInvalid].
func NewCounter(conn *zk.Conn, path string, opts ...CounterOption) (*Counter, error) {
	var own counterSettings
	s, err := recipe.NewOwn(conn, path, &own, opts, CounterOption.ApplyCounter)
	if err != nil {
		return nil, err
	}
	format := int64Codec
	switch {
	case own.int32:
		format = int32Codec
	case s.Layout == recipe.Kazoo:
		format = decimalCodec
	}
	v, err := New(conn, path, format, s.Settings())
	if err != nil {
		return nil, err
	}
	return &Counter{setup: s, value: v, updating: make(chan struct{}, 1)}, nil
}

// Get returns the counter. Like [Value.Get], it may be slightly out of date.
func (c *Counter) Get(ctx context.Context) (int64, error) {
	n, _, err := c.value.Get(ctx)
	return n, err
}

// Add adds delta exactly once and returns the sum. Errors: [ErrOverflow], [recipes.ErrFormat], and
// [recipes.ErrUnconfirmed] if it is unknown whether delta was added.
func (c *Counter) Add(ctx context.Context, delta int64) (int64, error) {
	return c.update(ctx, func(n int64) (int64, error) { return add(n, delta) })
}

// Set sets the counter to n, whatever its value is.
func (c *Counter) Set(ctx context.Context, n int64) error {
	_, err := c.value.Set(ctx, n)
	return err
}

// CompareAndSet sets the counter to n if it is equal to old, and returns [ErrChanged]
// otherwise.
func (c *Counter) CompareAndSet(ctx context.Context, old, n int64) error {
	_, err := c.update(ctx, func(current int64) (int64, error) {
		if current != old {
			return 0, ErrChanged
		}
		return n, nil
	})
	return err
}

// update replaces the number by the result of f. Only one call of a Counter at a time sends requests, because of
// several concurrent calls only one would succeed, and the others would have to try again.
func (c *Counter) update(ctx context.Context, f func(int64) (int64, error)) (int64, error) {
	select {
	case c.updating <- struct{}{}:
		defer func() { <-c.updating }()
		return c.value.Update(ctx, f)
	case <-ctx.Done():
		return 0, c.setup.Fail("update", c.setup.Path, context.Cause(ctx))
	}
}
