package lock

import (
	"context"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// holding is the context of one or several holds. It tells a Lock that is called
// with it what the caller holds; a hold is a value, so nothing else does.
type holding struct {
	context.Context
	holds []*Hold
}

// lockKey asks a context for the hold of a lock.
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

// refuse returns an error where a contender would wait for the caller's own hold,
// or could: a reader waits for a writer who waits for the caller's read lock.
func refuse(ctx context.Context, s *recipe.Setup, toWrite bool) error {
	h, _ := ctx.Value(lockKey{s.Conn, s.Path}).(*Hold)
	switch {
	case h == nil, ctx.Err() != nil, h.Err() != nil: // a context can outlive its hold
		return nil
	case toWrite && contender.Reads(path.Base(h.own())):
		return ErrUpgrade
	}
	return ErrReentrant
}
