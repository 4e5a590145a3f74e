package lock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// Errors of this package in addition to those of package recipes, to be tested with
// errors.Is.
var (
	// ErrHeld is returned if another client holds the lock or waits for it.
	ErrHeld = errors.New("lock: held by another client")
	// ErrEarly is returned by [Period.Try] if a hold has begun in this period.
	ErrEarly = errors.New("lock: the period has not ended")
	// ErrUpgrade is returned if Lock is called with the context of a read lock of the same RWMutex. Lock
	// would wait for that read lock.
	ErrUpgrade = errors.New("lock: a read lock cannot become a write lock")
	// ErrReentrant is returned if Lock is called with the context of a hold of the same
	// lock, and would or could wait for that hold.
	ErrReentrant = errors.New("lock: already held by the caller")
)

// Mutex is a mutual-exclusion lock. It does not keep local state: any number of Mutex values can
// refer to the lock at one path, and one value may be used by any number of goroutines,
// each of which is a separate contender.
type Mutex struct{ lockQueue }

// NewMutex returns the mutex at path. It sends no request: the first contender creates the
// znode. Options are those of package recipes, [WithName], [WithLockDelay] and
// [WithNamePrefix]. Errors:
// [recipes.ErrInvalid].
func NewMutex(conn *zk.Conn, path string, opts ...Option) (*Mutex, error) {
	q, err := newQueue(conn, path, "lock", opts, withLockDelay, withNamePrefix)
	if err != nil {
		return nil, err
	}
	return &Mutex{q}, nil
}

// Lock acquires the lock, and blocks until it is granted, also while ZooKeeper does not
// answer, and across sessions: in a new session, the contender is behind all others.
// If the context is done first, Lock returns its cause immediately, and the
// contender's znode is removed in the background. Other errors:
// [recipes.ErrDeleted], [recipes.ErrConnClosed],
// [recipes.ErrPermission], [recipes.ErrNodeExhausted], and [ErrReentrant] if ctx is derived
// from the context of a hold of this mutex.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	err := checkReentry(ctx, m.setup, true)
	var h *Hold
	if err == nil {
		h, err = m.acquisition(false).wait(ctx)
	}
	return h, m.setup.Fail("lock", m.setup.Path, err)
}

// TryLock is like Lock, but does not wait for other clients: it returns [ErrHeld] if
// another client holds the lock or waits for it. TryLock still waits for ZooKeeper, and for
// a lock-delay.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) {
	h, err := tryAcquire(ctx, &m.lockQueue, true, nil, m.acquisition(true))
	return h, m.setup.Fail("try to lock", m.setup.Path, err)
}

func (m *Mutex) acquisition(noWait bool) acquisition {
	return acquisition{setup: m.setup, cfg: m.config(contender.CuratorLock, contender.Kazoo), noWait: noWait, delay: m.settings.delay}
}

// tryAcquire returns ErrHeld without joining the queue if the queue contains a contender for which blocks is true,
// or any contender if blocks is nil. If it always joined the queue, other calls of TryLock would fail while its
// znode exists.
func tryAcquire(ctx context.Context, q *lockQueue, toWrite bool, blocks func(string) bool, c acquisition) (*Hold, error) {
	if err := checkReentry(ctx, q.setup, toWrite); err != nil {
		return nil, err
	}
	switch blocked, err := q.mustWait(ctx, blocks); {
	case err != nil:
		return nil, err
	case blocked:
		return nil, ErrHeld
	}
	return c.wait(ctx)
}
