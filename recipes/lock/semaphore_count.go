package lock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// WithSharedCount makes a [Semaphore] with [WithCuratorLayout] read its limit from Curator's SharedCount at path,
// which Java programs pass to InterProcessSemaphoreV2 as a SharedCountReader. So the limit can be changed while
// the semaphore is in use, by [Semaphore.SetLimit] and by Java programs. If no limit is stored, the first
// contender stores the limit given to the constructor. The first waiting contender uses a new limit as soon as it
// learns the change. Programs that do not use the same count use another limit.
func WithSharedCount(path string) Option {
	return newOption(withSharedCount, func(s *settings) { s.count = path })
}

// newSharedCount returns the SharedCount at path.
func newSharedCount(s *recipe.Setup, path string) (*value.Value[int], error) {
	v, err := value.New(s.Conn, path, countCodec, s.Settings())
	if err == nil && path == s.Path {
		err = fmt.Errorf("%w: the count and the semaphore need different paths", recipes.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("lock.WithSharedCount(%q): %w", path, err)
	}
	return v, nil
}

// countCodec is the format of SharedCount, 4 bytes. A limit below 0 has the same effect as 0.
var countCodec = recipes.Codec[int]{
	Encode: func(n int) ([]byte, error) { return binary.BigEndian.AppendUint32(nil, uint32(n)), nil },
	Decode: func(data []byte) (int, error) {
		if len(data) != 4 {
			return 0, fmt.Errorf("the limit has %d bytes, want 4", len(data))
		}
		return max(0, int(int32(binary.BigEndian.Uint32(data)))), nil
	},
}

// readCount returns the limit in the SharedCount, or zk.ErrNoNode if no limit is stored.
func (c *mutexProtocol) readCount(ctx context.Context) (int, error) {
	limit, version, err := c.count.Get(ctx)
	switch {
	case err != nil:
		return 0, err
	case version == (value.Version{}):
		return 0, zk.ErrNoNode
	}
	c.given.warnIfDifferent(limit)
	return limit, nil
}

// createCount stores the limit of the constructor, unless another client stores a limit first.
func (c *mutexProtocol) createCount(ctx context.Context) error {
	_, err := c.count.CompareAndSet(ctx, value.Version{}, c.given.limit)
	if errors.Is(err, value.ErrChanged) || errors.Is(err, recipes.ErrUnconfirmed) && ctx.Err() == nil {
		return nil
	}
	return err
}
