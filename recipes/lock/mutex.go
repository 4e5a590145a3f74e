package lock

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Mutex is a lock that one holder at a time can have. It has no state of its own:
// any number of values stand for the lock at one path, and one value serves any
// number of goroutines, each of which contends for itself.
type Mutex struct{ queue }

// NewMutex makes the mutex at path, whose znode is created with the first
// contender. It sends no request. Options are those of package recipes, [WithName]
// and [WithLockDelay]. Errors: [recipes.ErrNilConn], [recipes.ErrInvalidPath],
// [recipes.ErrInvalidOption].
func NewMutex(conn *zk.Conn, path string, opts ...recipes.Option) (*Mutex, error) {
	q, err := newQueue(conn, path, opts)
	if err != nil {
		return nil, err
	}
	return &Mutex{q}, nil
}

// Lock waits until the lock is granted. When the context ends before, Lock
// returns its cause at once, and its place in line is given up in the background.
// Other errors: [recipes.ErrSessionExpired], [recipes.ErrDeleted],
// [recipes.ErrConnClosed], [recipes.ErrPermission], [recipes.ErrNodeExhausted];
// [ErrReentrant] where the context is that of a hold of this mutex. While ZooKeeper
// does not answer, Lock waits.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	err := refuse(ctx, m.at, true)
	var h *Hold
	if err == nil {
		h, err = m.contest(false).wait(ctx)
	}
	return h, setup.Fail("lock", m.at.Path, err)
}

// TryLock is Lock that does not wait for others: it returns [ErrHeld] where
// somebody else has the lock or waits for it. It does wait for ZooKeeper, and for
// the end of a lock-delay.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) {
	h, err := try(ctx, &m.queue, true, nil, m.contest(true))
	return h, setup.Fail("try to lock", m.at.Path, err)
}

func (m *Mutex) contest(once bool) contest {
	return contest{cfg: m.config(line.CuratorLock, line.Kazoo), once: once, delay: m.settings.delay}
}

// try takes part only if nobody is there whom blocks names: what a contender leaves
// behind for a moment would be in the way of others who try.
func try(ctx context.Context, q *queue, toWrite bool, blocks func(string) bool, c contest) (*Hold, error) {
	if err := refuse(ctx, q.at, toWrite); err != nil {
		return nil, err
	}
	switch blocked, err := q.blocked(ctx, blocks); {
	case err != nil:
		return nil, err
	case blocked:
		return nil, ErrHeld
	}
	return c.wait(ctx)
}
