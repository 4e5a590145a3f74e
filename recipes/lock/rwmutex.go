package lock

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// RWMutex is a lock that either one writer or any number of readers can have. Both
// stand in one line: a writer waits for everybody who came before it, a reader for
// the writers who did. So nobody starves. It has no state of its own, as a [Mutex]
// has none.
//
// A write lock can become a read lock ([WriteHold.Downgrade]), a read lock never
// becomes a write lock: whoever holds one and waits for the other waits for ever,
// or until the context ends. A hold is a value, and which goroutines use it is not
// known; only where Lock is called with the hold's own context, or one derived from
// it, it returns [ErrUpgrade] at once.
//
// A token tells the order of grants that exclude each other, and nothing about two
// readers. So a resource should refuse tokens that are smaller than the greatest
// that it has seen from a writer.
type RWMutex struct{ queue }

// NewRWMutex makes the lock at path as [NewMutex] does, with the same options and
// errors.
func NewRWMutex(conn *zk.Conn, path string, opts ...recipes.Option) (*RWMutex, error) {
	q, err := newQueue(conn, path, opts)
	if err != nil {
		return nil, err
	}
	return &RWMutex{q}, nil
}

// Lock waits until the lock is granted for writing, as [Mutex.Lock] does, with the
// same errors. It returns [ErrUpgrade] where the context is that of a read lock
// of this RWMutex.
func (m *RWMutex) Lock(ctx context.Context) (*WriteHold, error) {
	h, err := m.write(false, func(c contest) (*Hold, error) {
		if err := refuse(ctx, m.at, true); err != nil {
			return nil, err
		}
		return c.wait(ctx)
	})
	return h, setup.Fail("lock", m.at.Path, err)
}

// TryLock is Lock that does not wait for others: see [Mutex.TryLock].
func (m *RWMutex) TryLock(ctx context.Context) (*WriteHold, error) {
	h, err := m.write(true, func(c contest) (*Hold, error) { return try(ctx, &m.queue, true, nil, c) })
	return h, setup.Fail("try to lock", m.at.Path, err)
}

// RLock waits until the lock is granted for reading, as [Mutex.Lock] does, with the
// same errors.
func (m *RWMutex) RLock(ctx context.Context) (*Hold, error) {
	err := refuse(ctx, m.at, false)
	var h *Hold
	if err == nil {
		h, err = m.reading(false).wait(ctx)
	}
	return h, setup.Fail("lock for reading", m.at.Path, err)
}

// TryRLock is RLock that does not wait for others: it returns [ErrHeld] where a
// writer has the lock or waits for it.
func (m *RWMutex) TryRLock(ctx context.Context) (*Hold, error) {
	h, err := try(ctx, &m.queue, false, writes, m.reading(true))
	return h, setup.Fail("try to lock for reading", m.at.Path, err)
}

func writes(name string) bool { return !line.Reads(name) }

// reading is the contest of a reader.
func (m *RWMutex) reading(once bool) contest {
	cfg := m.config(line.CuratorRead, line.KazooRead)
	cfg.Blocks = writes
	return contest{cfg: cfg, once: once, delay: m.settings.delay}
}

// write has f take part as a writer.
func (m *RWMutex) write(once bool, f func(contest) (*Hold, error)) (*WriteHold, error) {
	cfg := m.config(line.CuratorWrite, line.Kazoo)
	cfg.Yields = writes // to the reader that they have become
	renames := make(chan line.Rename)
	cfg.Renames = renames
	h, err := f(contest{cfg: cfg, once: once, delay: m.settings.delay})
	if err != nil {
		return nil, err
	}
	return &WriteHold{h, renames, m.naming(line.CuratorRead, line.KazooRead)}, nil
}
