package lock

import (
	"context"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// holding is the context of one or several holds. From it, Lock finds out which locks its caller
// holds: a hold is a value and belongs to no goroutine.
type holding struct {
	context.Context
	holds []*Hold
}

// lockKey is the key of the value of a context that is a hold of this lock.
type lockKey struct {
	conn *zk.Conn
	dir  string
}

func (c holding) Value(key any) any {
	if k, ok := key.(lockKey); ok {
		for _, h := range c.holds {
			if h.conn == k.conn && h.dir == k.dir {
				return h
			}
		}
	}
	return c.Context.Value(key)
}

// checkReentry returns an error if a contender would or could wait for a hold of the caller. A reader
// could, because it waits for an earlier writer that waits for the caller's read lock.
func checkReentry(ctx context.Context, s *recipe.Setup, toWrite bool) error {
	h, _ := ctx.Value(lockKey{s.Conn, s.Path}).(*Hold)
	switch {
	case h == nil, ctx.Err() != nil, h.Err() != nil: // a context can outlive its hold
		return nil
	case toWrite && contender.Reads(path.Base(h.znodePath())):
		return ErrUpgrade
	}
	return ErrReentrant
}
